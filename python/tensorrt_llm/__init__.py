"""What scripts written for TensorRT-LLM call, done by sluice."""

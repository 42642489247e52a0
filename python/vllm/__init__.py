"""What scripts written for vLLM call, done by sluice."""

// Base of response writers that wrap another one.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "server/http/http_types.h"

namespace sluice {

// Forwards all calls to `writer`. Thread safety: the same as for `writer`.
class ForwardingWriter : public ResponseWriter {
 public:
  explicit ForwardingWriter(std::shared_ptr<ResponseWriter> writer) : writer_(std::move(writer)) {}

  void Send(HttpResponse response) override { writer_->Send(std::move(response)); }
  void StartStream(HttpResponse response) override { writer_->StartStream(std::move(response)); }
  void WriteChunk(std::string_view data) override { writer_->WriteChunk(data); }
  void EndStream() override { writer_->EndStream(); }
  void Describe(AnswerNotes notes) override { writer_->Describe(std::move(notes)); }
  void CorrectNotes(const std::function<void(AnswerNotes&)>& change) override {
    writer_->CorrectNotes(change);
  }
  bool backlogged() const override { return writer_->backlogged(); }
  bool closed() const override { return writer_->closed(); }
  void SetCallbacks(std::function<void()> on_closed, std::function<void()> on_writable) override {
    writer_->SetCallbacks(std::move(on_closed), std::move(on_writable));
  }

 private:
  const std::shared_ptr<ResponseWriter> writer_;
};

}  // namespace sluice

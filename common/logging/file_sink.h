// The log's file. Records are appended to it, and it is opened again after an operator has moved it
// away.
#pragma once

#include <spdlog/sinks/base_sink.h>

#include <memory>
#include <mutex>
#include <string>

#include "common/fd.h"
#include "common/result.h"

namespace ina::logging {

class FileSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  /// Makes the file if it is not there, but no folders. The error names `setting`.
  static Result<std::shared_ptr<FileSink>> open(const std::string& path,
                                                const std::string& setting);
  /// Goes on in the file that is at the path now. On failure it goes on in the one before.
  Result<void> reopen();

 private:
  FileSink(std::string path, std::string setting, Fd fd)
      : path_(std::move(path)), setting_(std::move(setting)), fd_(std::move(fd)) {}
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}

  const std::string path_;
  const std::string setting_;
  Fd fd_;  ///< under the sink's mutex
};

}  // namespace ina::logging

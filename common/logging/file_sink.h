// The log's file. Records are appended to it, and it is opened again after an operator has moved it
// away.
#pragma once

#include <spdlog/sinks/base_sink.h>

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "common/fd.h"
#include "common/result.h"

namespace ina::logging {

class FileSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  /// Makes the file if it is not there, but no folders. The error names `setting`.
  static Result<std::shared_ptr<FileSink>> open(const std::string& path,
                                                const std::string& setting);
  /// Keeps the records, from the begin on: a program that may yet fail leaves alone a log that is
  /// another's. To be called before the first record.
  void hold() { holds_ = true; }
  /// Writes what was kept, and from now on each record.
  void release();
  /// What was kept, and is not to be written: lines.
  std::string discard();
  /// Goes on in the file that is at the path now. On failure it goes on in the one before.
  Result<void> reopen();

 private:
  FileSink(std::string path, std::string setting, Fd fd)
      : path_(std::move(path)), setting_(std::move(setting)), fd_(std::move(fd)) {}
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}
  void write(std::string_view text);

  const std::string path_;
  const std::string setting_;
  // Under the sink's mutex.
  Fd fd_;
  bool cut_ = false;  ///< the file ends within a line, for which there was no room
  bool holds_ = false;
  std::string held_;
};

}  // namespace ina::logging

#include "tests/support/written_lines.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/rseq.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string_view>

namespace ina::test {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr uint64_t kPresent = uint64_t{1} << 63;
const std::byte kNothing[kPageBytes] = {};  // of a page that was not there before

/// Reads a line of /proc/self/maps; false for memory that nobody writes, and for the main stack.
bool parse_mapping(std::string_view line, uintptr_t& begin, uintptr_t& end) {
  const char* const last = line.data() + line.size();
  const auto [dash, error] = std::from_chars(line.data(), last, begin, 16);
  if (error != std::errc{} || dash == last) return false;
  const auto [space, other_error] = std::from_chars(dash + 1, last, end, 16);
  if (other_error != std::errc{} || last - space < 3 || space[2] != 'w') return false;
  return line.find("[stack]") == std::string_view::npos;
}

}  // namespace

template <class T>
std::span<T> WrittenLines::reserve(size_t count) {
  const size_t bytes = (count * sizeof(T) + kPageBytes - 1) / kPageBytes * kPageBytes;
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  reserved_.emplace_back(static_cast<std::byte*>(memory), bytes);
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  own_.push_back({begin, begin + bytes});
  return {static_cast<T*>(memory), count};
}

WrittenLines::WrittenLines(std::span<const std::byte> own) {
  const auto begin = reinterpret_cast<uintptr_t>(own.data());
  own_.push_back({begin, begin + own.size()});
  const auto self = reinterpret_cast<uintptr_t>(this);
  own_.push_back({self, self + sizeof(*this)});
  // The kernel writes to this thread's area when the thread changes its processor.
  const auto thread = reinterpret_cast<uintptr_t>(__builtin_thread_pointer());
  const uintptr_t rseq = thread + static_cast<uintptr_t>(__rseq_offset);
  own_.push_back({rseq, rseq + sizeof(::rseq)});
  mappings_ = reserve<Mapping>(4096);
  pages_ = reserve<Page>(size_t{1} << 18);
  copies_ = reserve<std::byte>(size_t{1} << 30);
  lines_ = reserve<Line>(size_t{1} << 21);
  text_ = reserve<char>(size_t{1} << 20);
  maps_ = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  pagemap_ = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (maps_ < 0 || pagemap_ < 0) throw std::runtime_error("no /proc/self/maps or pagemap");
}

WrittenLines::~WrittenLines() {
  for (const auto memory : reserved_) ::munmap(memory.data(), memory.size());
  ::close(maps_);
  ::close(pagemap_);
}

void WrittenLines::read_mappings() {
  size_t bytes = 0;
  ::lseek(maps_, 0, SEEK_SET);
  for (ssize_t got; (got = ::read(maps_, text_.data() + bytes, text_.size() - bytes)) > 0;)
    bytes += static_cast<size_t>(got);
  if (bytes == text_.size()) complete_ = false;
  mapping_count_ = 0;
  std::string_view text(text_.data(), bytes);
  while (!text.empty()) {
    const size_t length = std::min(text.find('\n'), text.size() - 1);
    Mapping mapping{};
    if (parse_mapping(text.substr(0, length), mapping.begin, mapping.end)) {
      if (mapping_count_ == mappings_.size())
        complete_ = false;
      else
        mappings_[mapping_count_++] = mapping;
    }
    text.remove_prefix(length + 1);
  }
}

template <class Visit>
void WrittenLines::for_each_present_page(Visit visit) {
  uint64_t entries[512];
  for (const Mapping& mapping : mappings_.first(mapping_count_)) {
    for (uintptr_t page = mapping.begin; page < mapping.end;) {
      const size_t wanted = std::min<size_t>((mapping.end - page) / kPageBytes, std::size(entries));
      const ssize_t got = ::pread(pagemap_, entries, wanted * sizeof(entries[0]),
                                  static_cast<off_t>(page / kPageBytes * sizeof(entries[0])));
      if (got <= 0) {
        complete_ = false;
        break;
      }
      for (size_t i = 0; i < static_cast<size_t>(got) / sizeof(entries[0]); ++i, page += kPageBytes)
        if ((entries[i] & kPresent) != 0) visit(page);
    }
  }
}

void WrittenLines::before() {
  read_mappings();
  page_count_ = 0;
  for_each_present_page([this](uintptr_t page) {
    if (std::any_of(own_.begin(), own_.end(), [page](const Mapping& own) {
          return own.begin <= page && page + kPageBytes <= own.end;
        }))
      return;
    const size_t used = page_count_ * kPageBytes;
    if (page_count_ == pages_.size() || used + kPageBytes > copies_.size()) {
      complete_ = false;
      return;
    }
    std::memcpy(copies_.data() + used, reinterpret_cast<const void*>(page), kPageBytes);
    pages_[page_count_++] = {page, copies_.data() + used};
  });
}

void WrittenLines::after(uint32_t writer) {
  size_t next = 0;
  for_each_present_page([&](uintptr_t page) {
    while (next < page_count_ && pages_[next].address < page) ++next;
    const bool known = next < page_count_ && pages_[next].address == page;
    compare(page, known ? pages_[next].copy : kNothing, writer);
  });
}

void WrittenLines::compare(uintptr_t page, const std::byte* copy, uint32_t writer) {
  const auto* const now = reinterpret_cast<const std::byte*>(page);
  if (std::memcmp(now, copy, kPageBytes) == 0) return;
  for (size_t offset = 0; offset < kPageBytes; offset += kLineBytes) {
    const uintptr_t line = page + offset;
    if (std::memcmp(now + offset, copy + offset, kLineBytes) != 0 &&
        std::none_of(own_.begin(), own_.end(), [line](const Mapping& own) {
          return own.begin < line + kLineBytes && line < own.end;
        }))
      note(line, writer);
  }
}

void WrittenLines::note(uintptr_t line, uint32_t writer) {
  const size_t mask = lines_.size() - 1;
  size_t place = (line / kLineBytes * 0x9E3779B97F4A7C15u >> 40) & mask;
  while (lines_[place].address != 0 && lines_[place].address != line) place = (place + 1) & mask;
  if (lines_[place].address == 0 && ++line_count_ > lines_.size() / 2) {
    complete_ = false;
    return;
  }
  const uint64_t bit = uint64_t{1} << writer;
  if ((lines_[place].writers & bit) == 0) ++counts_[writer];
  lines_[place] = {line, lines_[place].writers | bit};
}

std::vector<std::string> WrittenLines::shared() const {
  std::vector<std::string> mappings;
  std::ifstream file("/proc/self/maps");
  for (std::string line; std::getline(file, line);) mappings.push_back(line);
  std::vector<std::string> found;
  for (const Line& line : lines_) {
    if (std::popcount(line.writers) < 2) continue;
    const auto mapping =
        std::find_if(mappings.begin(), mappings.end(), [&](const std::string& text) {
          uintptr_t begin = 0;
          uintptr_t end = 0;
          return parse_mapping(text, begin, end) && begin <= line.address && line.address < end;
        });
    found.push_back(fmt::format("{:#x} by lanes {:#x} in {}", line.address, line.writers,
                                mapping == mappings.end() ? "nothing" : *mapping));
  }
  return found;
}

}  // namespace ina::test

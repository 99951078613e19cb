#include "switchd/jobs/state_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "common/json/json.h"
#include "switchd/jobs/tree.h"
#include "wire/types.h"

namespace ina::switchd {

namespace {

using Json = nlohmann::json;

constexpr uint32_t kFormat = 1;
constexpr off_t kMaxFileBytes = off_t{16} << 20;

tl::unexpected<Error> system_error(const char* what, const std::string& path) {
  const int error = errno;
  std::string hint = "set control.state to a path whose folder the switch may write to";
  if (error == ENOENT || error == ENOTDIR) hint = "create its folder first, or " + hint;
  if (error == ENOSPC || error == EDQUOT) hint = "free some space";
  if (error == EFBIG) hint = "raise the limit of a file's size (ulimit -f, LimitFSIZE)";
  return fail(INA_ERR_INVALID, fmt::format("cannot {} the state file {}: {}; {}", what, path,
                                           std::strerror(error), hint));
}

// A file has room in steps of this, so that most changes need no more.
constexpr size_t kStepBytes = 16384;

/// Room on the disk for the text, and for some more jobs; the file's size stays. If there is none,
/// the next write may fail.
void reserve(int fd, size_t text_bytes) {
  const size_t room = (text_bytes / kStepBytes + 1) * kStepBytes;
  (void)::fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(room));
}

/// Beside the file stands its predecessor, whose room on the disk the next one takes: a full disk
/// does not keep a switch from starting again.
std::string spare_of(const std::string& path) {
  return path + ".spare";
}

/// The file that is written next, as `temporary`, open and locked: the spare one, if it is there
/// and nobody else's. Anybody may have put another there, in a folder that others may write to. A
/// process that was forked keeps the lock of a file that it has open.
Fd next_file(const std::string& path, const std::string& temporary) {
  ::unlink(temporary.c_str());  // left by a switch that was killed
  Fd fd(::open(spare_of(path).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat status {};
  if (fd && ::fstat(fd.get(), &status) == 0 && S_ISREG(status.st_mode) &&
      status.st_uid == ::geteuid() && status.st_nlink == 1 && (status.st_mode & 077) == 0 &&
      ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0 &&
      ::rename(spare_of(path).c_str(), temporary.c_str()) == 0)
    return fd;
  ::unlink(spare_of(path).c_str());
  fd = Fd(::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  return fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0 ? std::move(fd) : Fd();
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

/// The reason why the file could not be written, as far as can be seen without writing; 0: none.
int no_room(const std::string& path) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < kStepBytes) return EFBIG;
  struct stat spare {};
  if (::stat(spare_of(path).c_str(), &spare) == 0 &&
      static_cast<size_t>(spare.st_blocks) * 512 >= kStepBytes)
    return 0;
  struct statvfs disk {};
  const bool known = ::statvfs(folder_of(path).c_str(), &disk) == 0 && disk.f_blocks != 0;
  return known && disk.f_bavail * disk.f_frsize < kStepBytes ? ENOSPC : 0;
}

/// The file at `path`, open and locked. `create`: O_CREAT, or 0: nothing if there is no file.
Result<Fd> open_locked(const std::string& path, int create) {
  for (;;) {
    Fd fd(::open(path.c_str(), O_RDWR | create | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
    if (!fd && create == 0 && errno == ENOENT) return Fd();
    if (!fd) return system_error("open", path);
    struct stat opened {};
    if (::fstat(fd.get(), &opened) != 0) return system_error("examine", path);
    if (!S_ISREG(opened.st_mode))
      return fail(INA_ERR_INVALID,
                  "the state file " + path + " is not a regular file; set another control.state");
    // In a folder that others may write to, anybody could have put it there.
    if (opened.st_uid != ::geteuid())
      return fail(INA_ERR_INVALID,
                  fmt::format("the state file {} belongs to another user (uid {}); remove it, or "
                              "set another control.state",
                              path, opened.st_uid));
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return system_error("lock", path);
      return fail(INA_ERR_INVALID, "another switch uses the state file " + path +
                                       "; stop it, or set another control.socket and "
                                       "control.state");
    }
    // Its owner may have replaced it since it was opened.
    struct stat now {};
    if (::stat(path.c_str(), &now) == 0 && now.st_ino == opened.st_ino &&
        now.st_dev == opened.st_dev)
      return fd;
  }
}

/// Gives the file the text, and nothing else, on the disk. `path`: for errors.
Result<void> write_all(int fd, const std::string& text, const std::string& path) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t wrote =
        ::pwrite(fd, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return system_error("write", path);
    done += static_cast<size_t>(wrote);
  }
  const auto size = static_cast<off_t>(text.size());
  struct stat status {};
  const bool longer = ::fstat(fd, &status) != 0 || status.st_size > size;
  if (longer && ::ftruncate(fd, size) != 0) return system_error("shorten", path);
  if (::fsync(fd) != 0) return system_error("sync", path);
  return {};
}

Json to_json(const std::vector<SavedJob::Member>& members) {
  Json list = Json::array();
  for (const SavedJob::Member& member : members)
    list.push_back({{"number", member.number}, {"ranks", member.ranks}, {"key", member.key}});
  return list;
}

Json to_json(const SavedJob& job) {
  return {{"name", job.name},
          {"id", job.id},
          {"key", job.key},
          {"uid", job.uid},
          {"workers", job.workers},
          {"epoch", job.epoch},
          {"lanes", job.lanes},
          {"slot_bytes", job.slot_bytes},
          {"window", job.window},
          {"first_slot", job.first_slot},
          {"slots_per_lane", job.slots_per_lane},
          {"tenant", job.tenant},
          {"floor_per_lane", job.floor_per_lane},
          {"ceiling_per_lane", job.ceiling_per_lane},
          {"priority_max", job.priority_max},
          {"in_switch", job.in_switch},
          {"park_room", job.park_room},
          {"ticket", job.ticket},
          {"reserved_until", job.reserved_until},
          {"root", job.root},
          {"root_ranks", job.root_ranks},
          {"home", job.home},
          {"spread", job.spread},
          {"tree_members", to_json(job.tree_members)},
          {"above_id", job.above_id},
          {"above_key", job.above_key}};
}

/// A number of `json` that must lie in low..high; throws a sentence.
template <class T>
T number(const Json& json, const char* field, uint64_t low, uint64_t high) {
  const Json& value = json.at(field);
  if (!value.is_number_unsigned() || value.get<uint64_t>() < low || value.get<uint64_t>() > high)
    throw std::runtime_error(fmt::format("{} is not in {}..{}", field, low, high));
  return value.get<T>();
}

/// True if each worker is a member of this switch, below one, or, if there is one, at the switch
/// above, and numbers have no gaps.
bool are_members(const SavedJob& job) {
  RankSet all;
  RankSet numbers;
  uint32_t ranks = 0;
  for (const SavedJob::Member& member : job.tree_members) {
    const auto own = ranks_of_runs(member.ranks, job.workers);
    if (!own || own->empty() || (member.key == 0 && !own->is_single())) return false;
    all |= *own;
    ranks += own->size();
    numbers.insert(Rank{static_cast<uint16_t>(member.number)});
  }
  return ranks == all.size() && (ranks == job.workers) == (job.above_id == 0) &&
         numbers == RankSet::first(static_cast<uint32_t>(job.tree_members.size()));
}

SavedJob job_of(const Json& json) {
  SavedJob job;
  job.name = json.at("name").get<std::string>();
  if (json.contains("root")) job.root = number<uint32_t>(json, "root", 0, UINT32_MAX);
  if (job.name.empty() || job.name.size() > (job.root == 0 ? 128 : 160))
    throw std::runtime_error("a job's name does not have 1 to 128 characters");
  job.id = number<uint32_t>(json, "id", 1, UINT32_MAX);
  job.key = number<uint64_t>(json, "key", 0, UINT64_MAX);
  job.uid = number<uint32_t>(json, "uid", 0, UINT32_MAX);
  job.workers = number<uint32_t>(json, "workers", 1, kMaxRanks);
  job.epoch = number<uint32_t>(json, "epoch", 0, UINT32_MAX);
  job.lanes = number<uint32_t>(json, "lanes", 1, UINT16_MAX);
  job.slot_bytes = number<uint32_t>(json, "slot_bytes", 1, UINT32_MAX);
  job.window = number<uint32_t>(json, "window", 1, UINT32_MAX);
  job.first_slot = number<uint32_t>(json, "first_slot", 0, UINT32_MAX);
  job.slots_per_lane = number<uint32_t>(json, "slots_per_lane", 0, UINT32_MAX);
  // The following members are not in the files of earlier switches.
  if (json.contains("tenant")) job.tenant = json.at("tenant").get<std::string>();
  if (job.tenant.size() > 31) throw std::runtime_error("a tenant has more than 31 characters");
  if (json.contains("ceiling_per_lane")) {
    job.floor_per_lane = number<uint32_t>(json, "floor_per_lane", 0, UINT32_MAX);
    job.ceiling_per_lane = number<uint32_t>(json, "ceiling_per_lane", 0, UINT32_MAX);
    job.priority_max = number<uint8_t>(json, "priority_max", 1, UINT8_MAX);
  }
  if (json.contains("in_switch")) {
    job.in_switch = number<uint32_t>(json, "in_switch", 0, UINT32_MAX);
    job.park_room = number<uint32_t>(json, "park_room", 0, UINT32_MAX);
  }
  if (json.contains("ticket")) {
    job.ticket = json.at("ticket").get<std::string>();
    job.reserved_until = number<int64_t>(json, "reserved_until", 0, INT64_MAX);
  }
  if (job.root != 0) {
    job.root_ranks = json.at("root_ranks").get<std::vector<uint32_t>>();
    if (job.root_ranks.size() != job.workers ||
        std::ranges::any_of(job.root_ranks, [](uint32_t rank) { return rank >= kMaxRanks; }))
      throw std::runtime_error("a group does not say which workers of its job are in it");
  }
  if (json.contains("spread")) {
    job.spread = json.at("spread").get<bool>();
    for (const Json& member : json.at("tree_members"))
      job.tree_members.push_back({number<uint32_t>(member, "number", 0, kMaxRanks - 1),
                                  member.at("ranks").get<std::vector<uint32_t>>(),
                                  number<uint64_t>(member, "key", 0, UINT64_MAX)});
    job.above_id = number<uint32_t>(json, "above_id", 0, UINT32_MAX);
    job.above_key = number<uint64_t>(json, "above_key", 0, UINT64_MAX);
    if (!job.tree_members.empty() && !are_members(job))
      throw std::runtime_error("a job does not say which workers are at which switch");
  }
  if (json.contains("home")) job.home = json.at("home").get<std::string>();
  return job;
}

/// True if the only change is that jobs have the first epochs of this start, which follow from its
/// number.
bool have_first_epochs_only(const std::vector<SavedJob>& before, std::vector<SavedJob> after,
                            uint32_t first_epoch) {
  if (before.size() != after.size()) return false;
  for (size_t i = 0; i < after.size(); ++i)
    if (after[i].epoch == first_epoch && before[i].epoch < first_epoch)
      after[i].epoch = before[i].epoch;
  return before == after;
}

}  // namespace

Result<StateFile> StateFile::open(const std::string& path) {
  auto lock = open_locked(path, O_CREAT);
  if (!lock) return tl::unexpected(lock.error());
  StateFile file(path, std::move(*lock));
  if (auto read = file.read(); !read) return tl::unexpected(read.error());
  if (file.boots_ == kMaxBoots) {
    // Epochs are compared within a job only, so the counter may start again once no job is old.
    file.boots_ = 0;
    file.jobs_.clear();
  }
  ++file.boots_;
  if (auto written = file.write(); !written) return tl::unexpected(written.error());
  return file;
}

Result<void> StateFile::check(const std::string& path) {
  // The file is replaced by another in its folder.
  if (::access(folder_of(path).c_str(), W_OK | X_OK) != 0) return system_error("write", path);
  auto lock = open_locked(path, 0);
  if (!lock) return tl::unexpected(lock.error());
  if (const int error = no_room(path); error != 0) {
    errno = error;
    return system_error("write", path);
  }
  return *lock ? StateFile(path, std::move(*lock)).read() : Result<void>();
}

Result<void> StateFile::read() {
  struct stat status {};
  if (::fstat(lock_.get(), &status) != 0) return system_error("examine", path_);
  if (status.st_size == 0) return {};  // just made
  std::string problem = "it is larger than any switch writes";
  if (status.st_size <= kMaxFileBytes) {
    std::string text(static_cast<size_t>(status.st_size), '\0');
    const ssize_t got = ::pread(lock_.get(), text.data(), text.size(), 0);
    if (got < 0) return system_error("read", path_);
    text.resize(static_cast<size_t>(got));
    try {
      const Json json = Json::parse(text);
      number<uint32_t>(json, "format", kFormat, kFormat);
      boots_ = number<uint32_t>(json, "boots", 1, kMaxBoots);
      next_job_id_ = number<uint32_t>(json, "next_job_id", 1, UINT32_MAX);
      std::set<uint32_t> ids;
      std::set<std::string> names;  // of a user or tenant
      for (const Json& job : json.at("jobs")) {
        jobs_.push_back(job_of(job));
        const SavedJob& last = jobs_.back();
        const std::string owner =
            last.tenant.empty() ? std::to_string(last.uid) + ":" : last.tenant;
        // A group's name is for people alone.
        if (!ids.insert(last.id).second ||
            (last.root == 0 && !names.insert(owner + "/" + last.name).second))
          throw std::runtime_error("a job is in it twice");
      }
      return {};
    } catch (const std::exception& e) {
      problem = e.what();
    }
  }
  return fail(INA_ERR_INVALID,
              fmt::format("the state file {} is damaged: {}. It says which jobs were running: "
                          "restore it, or remove it to start without them (their workers then get "
                          "INA_ERR_SWITCH_LOST)",
                          path_, problem));
}

Result<void> StateFile::write() {
  Json json = {{"format", kFormat},
               {"boots", boots_},
               {"next_job_id", next_job_id_},
               {"jobs", Json::array()}};
  for (const SavedJob& job : jobs_) json["jobs"].push_back(to_json(job));
  const std::string text = json.dump(1) + "\n";
  const std::string temporary = path_ + ".new";
  // Locked before it takes the place of the file that is locked now.
  Fd fd = next_file(path_, temporary);
  if (!fd) return system_error("write", path_);
  const auto written = write_all(fd.get(), text, path_);
  if (!written) {
    (void)::rename(temporary.c_str(), spare_of(path_).c_str());
    return written;
  }
  // The file before is the next spare one. A file system that cannot exchange two has none.
  const bool kept =
      ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) == 0;
  if (!kept && ::rename(temporary.c_str(), path_.c_str()) != 0)
    return system_error("replace", path_);
  reserve(fd.get(), text.size());
  if (kept && ::rename(temporary.c_str(), spare_of(path_).c_str()) == 0)
    reserve(lock_.get(), text.size());
  lock_ = std::move(fd);
  const Fd directory(::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory || ::fsync(directory.get()) != 0) return system_error("sync the folder of", path_);
  return {};
}

uint32_t StateFile::new_job_id() {
  for (;;) {
    const uint32_t id = next_job_id_;
    next_job_id_ = id == UINT32_MAX ? 1 : id + 1;
    if (std::ranges::none_of(jobs_, [&](const SavedJob& job) { return job.id == id; })) return id;
  }
}

Result<uint32_t> StateFile::epoch_after(uint32_t last) const {
  if (last == UINT32_MAX) return fail(INA_ERR_INTERNAL, "the job has used up its epochs");
  // A job that had more epochs in a boot than the number has bits is ahead of the boot counter; the
  // table remembers that.
  return std::max(last + 1, boots_ << kEpochNumberBits);
}

Result<void> StateFile::put(const SavedJob& job) {
  const auto known =
      std::ranges::find_if(jobs_, [&](const SavedJob& other) { return other.id == job.id; });
  if (known == jobs_.end())
    jobs_.push_back(job);
  else
    *known = job;
  return write();
}

Result<void> StateFile::erase(uint32_t id) {
  if (std::erase_if(jobs_, [&](const SavedJob& job) { return job.id == id; }) == 0) return {};
  return write();
}

Result<void> StateFile::replace(std::vector<SavedJob> jobs) {
  const bool known = have_first_epochs_only(jobs_, jobs, boots_ << kEpochNumberBits);
  jobs_ = std::move(jobs);
  if (known) return {};
  return write();
}

}  // namespace ina::switchd

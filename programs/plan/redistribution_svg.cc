#include "programs/plan/redistribution_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace ina::cli {
namespace {

using redistribution::Plan;
using redistribution::Step;

constexpr double kLeft = 250, kRight = 30, kWidth = 1000, kTop = 56, kRow = 34, kBar = 22;
constexpr double kMemoryHeight = 110;
constexpr size_t kMostBars = 400;
/// A step that takes no time by the model is seen all the same.
constexpr double kLeastWidth = 1.5;

/// One step of one piece.
struct Span {
  size_t step;
  double start_us;
  double overhead_us;  ///< before the first byte
  double end_us;
  uint64_t held_bytes;
};

uint64_t shown_pieces(const Plan& plan) {
  return std::min<uint64_t>(
      plan.pieces().count,
      std::max<size_t>(1, kMostBars / std::max<size_t>(1, plan.steps().size())));
}

std::vector<Span> spans_of(const Plan& plan) {
  const auto& problem = plan.problem();
  const uint64_t pieces = plan.pieces().count;
  const uint64_t source = problem.source_elements() / pieces;
  const uint64_t target = problem.target_elements() / pieces;
  std::vector<Span> spans;
  double now_us = 0;
  for (uint64_t piece = 0; piece < shown_pieces(plan); ++piece)
    for (size_t i = 0; i < plan.steps().size(); ++i) {
      const Step& step = plan.steps()[i];
      const double us = step.predicted_us / static_cast<double>(pieces);
      const double overhead_us = us > 0 ? problem.costs.time_us(step.messages, 0) : 0;
      const uint64_t held = (pieces - 1 - piece) * source + piece * target +
                            (step.input_elements + step.output_elements) / pieces;
      spans.push_back({i, now_us, overhead_us, now_us + us, held * problem.element_bytes});
      now_us += us;
    }
  return spans;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

class Drawing {
 public:
  explicit Drawing(const Plan& plan) : plan_(plan), spans_(spans_of(plan)) {
    end_us_ = spans_.empty() ? 0 : spans_.back().end_us;
    memory_top_ = kTop + kRow * static_cast<double>(plan.steps().size()) + 40;
  }

  std::string text() {
    const double height = memory_top_ + kMemoryHeight + 50;
    add("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
        "height=\"{1}\" "
        "font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" "
        "fill=\"white\"/>\n",
        kWidth, height);
    title();
    for (size_t i = 0; i < plan_.steps().size(); ++i) row(i);
    for (const Span& span : spans_) bar(span);
    memory();
    axis();
    return out_ + "</svg>\n";
  }

 private:
  template <class... Values>
  void add(fmt::format_string<Values...> format, Values&&... values) {
    out_ += fmt::format(format, std::forward<Values>(values)...);
  }
  double x(double us) const {
    return kLeft + (end_us_ > 0 ? us / end_us_ * (kWidth - kLeft - kRight) : 0);
  }

  void title() {
    const auto& problem = plan_.problem();
    const uint64_t shown = shown_pieces(plan_);
    const std::string pieces =
        plan_.pieces().count == 1 ? ""
        : shown == plan_.pieces().count
            ? fmt::format(", {} pieces", shown)
            : fmt::format(", the first {} of {} pieces", shown, plan_.pieces().count);
    add("<text x=\"12\" y=\"22\" font-size=\"15\">{} of {} B on {}: {} to {}, {}{}</text>\n",
        redistribution::shape_text(problem.shape), problem.element_bytes, problem.mesh.text(),
        escaped(layout_text(problem.mesh, problem.from)),
        escaped(layout_text(problem.mesh, problem.to)), name_of(plan_.method()), pieces);
    add("<text x=\"12\" y=\"42\" fill=\"#555\">Times by the cost model: {} us an operation, {} us "
        "a message, "
        "{} Gb/s. Light: start-up and messages; dark: bytes.</text>\n",
        problem.costs.operation_us, problem.costs.message_us, problem.costs.bytes_per_us / 125);
  }

  void row(size_t step) {
    const double y = kTop + kRow * static_cast<double>(step);
    const auto& mesh = plan_.problem().mesh;
    add("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#f3f3f3\"/>\n", kLeft, y + 4,
        kWidth - kLeft - kRight, kBar);
    add("<text x=\"12\" y=\"{}\">{} {}</text>\n", y + 14, step + 1,
        name_of(plan_.steps()[step].operation));
    add("<text x=\"24\" y=\"{}\" fill=\"#555\" font-size=\"11\">to {}</text>\n", y + 28,
        escaped(layout_text(mesh, plan_.steps()[step].after)));
  }

  void bar(const Span& span) {
    const double y = kTop + kRow * static_cast<double>(span.step) + 4;
    const double begin = x(span.start_us);
    const double sending = x(span.start_us + span.overhead_us);
    add("<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"#9ecae1\"/>\n", begin, y,
        std::max(sending - begin, kLeastWidth), kBar);
    if (span.end_us > span.start_us + span.overhead_us)
      add("<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"#2171b5\"/>\n",
          sending, y, x(span.end_us) - sending, kBar);
  }

  void memory() {
    const uint64_t limit = plan_.problem().limit_bytes;
    const auto most = static_cast<double>(std::max({limit, plan_.peak_bytes(), uint64_t{1}}));
    const double bottom = memory_top_ + kMemoryHeight;
    const auto y = [&](double bytes) { return bottom - bytes / most * kMemoryHeight; };
    add("<text x=\"12\" y=\"{}\">buffers of a rank</text>\n", memory_top_ + 14);
    add("<text x=\"24\" y=\"{}\" fill=\"#555\" font-size=\"11\">peak {} B</text>\n",
        memory_top_ + 30, plan_.peak_bytes());
    for (const Span& span : spans_)
      add("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"#a1d99b\"/>\n",
          x(span.start_us), y(static_cast<double>(span.held_bytes)),
          std::max(x(span.end_us) - x(span.start_us), kLeastWidth),
          bottom - y(static_cast<double>(span.held_bytes)));
    if (limit == 0) return;
    add("<line x1=\"{}\" x2=\"{}\" y1=\"{:.2f}\" y2=\"{:.2f}\" stroke=\"#cb181d\" "
        "stroke-dasharray=\"6 3\"/>\n",
        kLeft, kWidth - kRight, y(static_cast<double>(limit)), y(static_cast<double>(limit)));
    add("<text x=\"24\" y=\"{}\" fill=\"#cb181d\" font-size=\"11\">limit {} B</text>\n",
        memory_top_ + 46, limit);
  }

  void axis() {
    const double y = memory_top_ + kMemoryHeight;
    add("<line x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\" stroke=\"black\"/>\n", kLeft,
        kWidth - kRight, y, y);
    constexpr int kTicks = 5;
    for (int i = 0; i <= kTicks; ++i) {
      const double us = end_us_ * i / kTicks;
      add("<text x=\"{:.2f}\" y=\"{}\" text-anchor=\"middle\">{:.4g}</text>\n", x(us), y + 18, us);
      if (end_us_ == 0) break;
    }
    add("<text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#555\">microseconds</text>\n",
        kWidth - kRight, y + 38);
  }

  const Plan& plan_;
  std::vector<Span> spans_;
  double end_us_ = 0;
  double memory_top_ = 0;
  std::string out_;
};

}  // namespace

std::string timeline_svg(const Plan& plan) {
  return Drawing(plan).text();
}

}  // namespace ina::cli

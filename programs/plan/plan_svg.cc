#include "programs/plan/plan_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string_view>

namespace ina::cli {
namespace {

using themis::Operation;
using themis::Phase;
using themis::Picos;
using themis::Stage;

// Pixels.
constexpr double kWidth = 1000;
constexpr double kLeft = 200;
constexpr double kRight = 105;
constexpr double kTitle = 34;
constexpr double kRow = 40;
constexpr double kBar = 30;
constexpr double kAxis = 40;
constexpr double kLegend = 56;
constexpr double kPlotWidth = kWidth - kLeft - kRight;
constexpr double kEdge = 3;          ///< of operations by an aggregating switch
constexpr double kNumberWidth = 16;  ///< a bar so wide has its chunk's number
constexpr double kSeam = 3;          ///< narrower bars of one colour run together
constexpr int kTicks = 10;

/// In the order of Phase.
constexpr std::array<std::string_view, 4> kColours = {"#1f4e9c", "#d9902f", "#7a3b8f", "#3c8d53"};

struct Bar {
  Picos start_ps = 0;
  Picos end_ps = 0;
  Phase phase = Phase::kReduceScatter;
  bool in_network = false;
  uint32_t chunk = 0;
  bool is_run = false;  ///< of several operations
};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

/// 1, 2 or 5 times a power of ten: at most kTicks steps of it.
double tick_of(double whole) {
  double step = std::pow(10, std::floor(std::log10(whole / kTicks)));
  for (const double factor : {2.0, 2.5, 2.0})
    if (whole / step > kTicks) step *= factor;
  return step;
}

class Drawing {
 public:
  explicit Drawing(const std::vector<SvgPanel>& panels) : panels_(panels) {
    for (const SvgPanel& panel : panels) end_ps_ = std::max(end_ps_, panel.timeline->end_ps);
    end_ps_ = std::max<Picos>(end_ps_, 1);
    // Microseconds, or milliseconds where these would be long numbers.
    in_ms_ = end_ps_ >= Picos{20'000} * 1'000'000;
  }

  std::string draw() {
    double height = kLegend;
    for (const SvgPanel& panel : panels_)
      height += kTitle + kRow * static_cast<double>(panel.timeline->dimensions.size()) + kAxis;
    add("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
        "{1}\" font-family=\"sans-serif\" font-size=\"13\" role=\"img\" "
        "data-drawn-by=\"ina-plan\">\n",
        kWidth, height);
    add("<title>Use of each dimension over time</title>\n{}", kPatterns);
    add("<rect width=\"{}\" height=\"{}\" fill=\"#ffffff\"/>\n", kWidth, height);
    for (const SvgPanel& panel : panels_) draw_panel(panel);
    draw_legend();
    return out_ + "</svg>\n";
  }

 private:
  static constexpr std::string_view kPatterns =
      "<defs><pattern id=\"idle\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">"
      "<rect width=\"6\" height=\"6\" fill=\"#f2f2f2\"/>"
      "<path d=\"M0 6L6 0\" stroke=\"#bbbbbb\" stroke-width=\"1\"/></pattern></defs>\n";

  template <class... Values>
  void add(fmt::format_string<Values...> form, Values&&... values) {
    fmt::format_to(std::back_inserter(out_), form, std::forward<Values>(values)...);
  }

  double x_of(Picos at_ps) const {
    return kLeft + kPlotWidth * static_cast<double>(at_ps) / static_cast<double>(end_ps_);
  }

  double in_units(Picos at_ps) const { return static_cast<double>(at_ps) * (in_ms_ ? 1e-9 : 1e-6); }

  void text(double x, double y, std::string_view anchor, std::string_view what,
            std::string_view more = "") {
    add("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, more,
        escaped(what));
  }

  void draw_panel(const SvgPanel& panel) {
    text(8, y_ + 22, "start", panel.title, " font-size=\"15\" font-weight=\"bold\"");
    y_ += kTitle;
    const double top = y_;
    for (size_t d = 0; d < panel.timeline->dimensions.size(); ++d) {
      draw_row(panel, d);
      y_ += kRow;
    }
    draw_axis(top);
    draw_end(panel, top);
    y_ += kAxis;
  }

  void draw_row(const SvgPanel& panel, size_t index) {
    const themis::Dimension& dimension = panel.plan->topology.dimensions[index];
    text(8, y_ + 14, "start", fmt::format("{}: {}", index + 1, dimension.name));
    const double gbps = static_cast<double>(dimension.bits_per_s) * 1e-9;
    text(8, y_ + 29, "start", fmt::format("{:.6g} Gb/s", gbps),
         " font-size=\"12\" fill=\"#555555\"");
    const auto& operations = panel.timeline->dimensions[index];
    const auto is_uneven = [&](const Operation& o) {
      const Stage& stage = stage_of(panel, o);
      return stage.tx_ps != stage.rx_ps;
    };
    const bool is_split = std::ranges::any_of(operations, is_uneven);
    const double height = is_split ? kBar / 2 - 1 : kBar;
    const Picos sent_ps = draw_bars(panel, operations, true, y_, height);
    std::string use = share(sent_ps, panel);
    if (is_split) {
      const Picos got_ps = draw_bars(panel, operations, false, y_ + kBar / 2 + 1, height);
      text(kLeft - 6, y_ + 12, "end", "sends", " font-size=\"11\"");
      text(kLeft - 6, y_ + 28, "end", "gets", " font-size=\"11\"");
      text(kWidth - kRight + 8, y_ + 12, "start", use, " font-size=\"12\"");
      text(kWidth - kRight + 8, y_ + 28, "start", share(got_ps, panel), " font-size=\"12\"");
    } else {
      text(kWidth - kRight + 8, y_ + 20, "start", use);
    }
  }

  static std::string share(Picos busy_ps, const SvgPanel& panel) {
    const double end = static_cast<double>(std::max<Picos>(panel.timeline->end_ps, 1));
    return fmt::format("{:.1f} % busy", 100 * static_cast<double>(busy_ps) / end);
  }

  static const Stage& stage_of(const SvgPanel& panel, const Operation& operation) {
    return panel.plan->chunks[operation.id.chunk].stages[operation.id.stage];
  }

  /// Returns how long the direction is busy.
  Picos draw_bars(const SvgPanel& panel, const std::vector<Operation>& operations, bool sends,
                  double y, double height) {
    const double x_end = x_of(panel.timeline->end_ps);
    add("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" "
        "fill=\"url(#idle)\"/>\n",
        kLeft, y, x_end - kLeft, height);
    Picos busy_ps = 0;
    std::vector<Bar> bars;
    for (const Operation& o : operations) {
      const Stage& stage = stage_of(panel, o);
      const Bar bar{.start_ps = sends ? o.tx_start_ps : o.rx_start_ps,
                    .end_ps = sends ? o.tx_end_ps : o.rx_end_ps,
                    .phase = stage.phase,
                    .in_network = stage.in_network,
                    .chunk = o.id.chunk};
      busy_ps += bar.end_ps - bar.start_ps;
      if (!bars.empty() && runs_on(bars.back(), bar)) {
        bars.back().end_ps = bar.end_ps;
        bars.back().is_run = true;
      } else if (bar.end_ps > bar.start_ps) {
        bars.push_back(bar);
      }
    }
    for (const Bar& bar : bars) draw_bar(bar, y, height);
    return busy_ps;
  }

  /// True if both bars are alike and narrow, without a gap; `before` may be a run of such bars.
  bool runs_on(const Bar& before, const Bar& next) const {
    const auto is_narrow = [this](const Bar& bar) {
      return x_of(bar.end_ps) - x_of(bar.start_ps) < kSeam;
    };
    return before.phase == next.phase && before.in_network == next.in_network &&
           next.start_ps == before.end_ps && (before.is_run || is_narrow(before)) &&
           is_narrow(next);
  }

  void draw_bar(const Bar& bar, double y, double height) {
    const double x = x_of(bar.start_ps), width = x_of(bar.end_ps) - x;
    const bool has_edge = width >= kSeam && !bar.is_run;
    const auto rect = [&](double top, double tall, std::string_view fill, std::string_view more) {
      add("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"{}\"{}/>\n", x,
          top, width, tall, fill, more);
    };
    rect(y, height, kColours[static_cast<size_t>(bar.phase)],
         has_edge ? " stroke=\"#ffffff\" stroke-width=\"0.6\"" : "");
    if (bar.in_network) rect(y + height - kEdge, kEdge, "#000000", "");
    if (width >= kNumberWidth && !bar.is_run)
      text(x + width / 2, y + height / 2 + 4, "middle", std::to_string(bar.chunk + 1),
           " font-size=\"11\" fill=\"#ffffff\"");
  }

  void draw_axis(double top) {
    const double whole = in_units(end_ps_), step = tick_of(whole);
    for (int i = 0; static_cast<double>(i) * step <= whole * (1 + 1e-9); ++i) {
      const double at = static_cast<double>(i) * step;
      const double x = kLeft + kPlotWidth * at / whole;
      add("<path d=\"M{0:.2f} {1:.1f}V{2:.1f}\" stroke=\"#999999\" stroke-width=\"0.5\"/>\n", x,
          top, y_ + 5);
      text(x, y_ + 18, "middle", fmt::format("{:.6g}", at), " font-size=\"12\"");
    }
    text(kLeft - 30, y_ + 18, "end", in_ms_ ? "time [ms]" : "time [us]", " font-size=\"12\"");
  }

  void draw_end(const SvgPanel& panel, double top) {
    const double x = x_of(panel.timeline->end_ps);
    add("<path d=\"M{0:.2f} {1:.1f}V{2:.1f}\" stroke=\"#000000\" stroke-width=\"1.5\"/>\n", x,
        top - 4, y_ + 5);
  }

  bool has(Phase phase) const {
    return any([phase](const Stage& stage) { return stage.phase == phase; });
  }

  template <class Predicate>
  bool any(Predicate is_so) const {
    for (const SvgPanel& panel : panels_)
      for (const themis::Chunk& chunk : panel.plan->chunks)
        if (std::ranges::any_of(chunk.stages, is_so)) return true;
    return false;
  }

  void draw_legend() {
    double x = kLeft;
    const auto entry = [&](std::string_view fill, std::string_view label, double width) {
      add("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"18\" height=\"14\" fill=\"{}\"/>\n", x, y_ + 8,
          fill);
      text(x + 24, y_ + 20, "start", label);
      x += width;
    };
    for (const Phase phase :
         {Phase::kReduceScatter, Phase::kAllGather, Phase::kAllReduce, Phase::kAllToAll})
      if (has(phase)) entry(kColours[static_cast<size_t>(phase)], themis::name(phase), 125);
    entry("url(#idle)", "idle", 70);
    y_ += 20;
    const bool aggregates = any([](const Stage& stage) { return stage.in_network; });
    text(kLeft, y_ + 20, "start",
         fmt::format("Numbers are chunks; the black line is the end.{}",
                     aggregates ? " Bars with a black lower edge: by an aggregating switch." : ""));
  }

  const std::vector<SvgPanel>& panels_;
  Picos end_ps_ = 0;
  bool in_ms_ = false;
  double y_ = 0;
  std::string out_;
};

}  // namespace

std::string draw_svg(const std::vector<SvgPanel>& panels) {
  return Drawing(panels).draw();
}

}  // namespace ina::cli

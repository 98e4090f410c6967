"""Tables and charts of the engine by itself."""

import os

from common import Goal, machine_text, markdown_table, median, number, pyplot, read_rows, save

KINDS = ("doubling", "split", "grow", "strategy", "compaction", "nothing")
KIND_TEXT = {
    "doubling": "the directory was doubled",
    "split": "a segment was split in two",
    "grow": "a segment has grown by a part",
    "strategy": "a segment has changed its strategy",
    "compaction": "values have moved to a list",
    "nothing": "nothing of these",
}


FILTER_FIGURES = {"miss": "miss", "miss_alone": "miss, alone", "hit": "hit",
                  "hit_alone": "hit, alone", "insert": "insert"}


class Figures:
    """Medians of what was measured, by label, operation, workers and figure."""

    def __init__(self, rows):
        self.values = {}
        for row in rows:
            key = (row["label"], row["operation"], int(row["workers"]), row["figure"])
            self.values.setdefault(key, []).append(float(row["value"]))

    def get(self, label, operation, figure, workers=1):
        return median(self.values.get((label, operation, workers, figure), []))

    def labels(self, prefix):
        """What follows a prefix in labels, as numbers in order."""
        found = {label[len(prefix):] for label, *_ in self.values if label.startswith(prefix)}
        return sorted(int(text) for text in found)


def ratio(a, b):
    return a / b if a is not None and b else None


def goals(f):
    """(figure, unit, value, goal)"""
    line = f.get("single", "machine", "line_ns")
    persist = f.get("single", "machine", "persist_ns")
    yield "machine: dependent random line", "ns", line, None
    yield "machine: store, flush, fence", "ns", persist, None

    def beside_first(name, factor=None):
        """The ratio to the first version in one process, and what is wanted of it."""
        value = f.get("ab", name, "ratio")
        return Goal(f">= {factor} x the first version", value, factor, unit=" x") if factor and value else None

    for name, factor in (("insert", 1.6), ("hit", 1.25), ("miss", 1.3), ("delete", 1.8)):
        yield (f"{name}, one thread", "Mops/s", f.get("single", name, "mops"),
               beside_first(name, factor))
    for name in ("dependent-hit", "dependent-miss", "group-insert", "group-hit", "group-delete"):
        yield (f"{name.replace('-', ' ')}, beside the first version: ratio", "", f.get("ab", name, "ratio"), None)
    yield "only the loads of a hit, one thread", "Mops/s", f.get("single", "floor", "mops"), None
    yield "load factor of these look-ups", "", f.get("single", "insert", "load_factor"), None
    yield ("insert, one thread, while the file grows", "Mops/s",
           f.get("unreserved", "insert", "mops"), None)
    for name in ("insert", "hit", "miss", "delete"):
        two = f.get("two", name, "mops", 2)
        yield (f"{name}, two threads", "Mops/s", two,
               Goal(">= 1.85 x one thread", ratio(two, f.get("single", name, "mops")), 1.85,
                    unit=" x"))
    for label, group, single, factor in (("group", "group-insert", "insert", 1.82),
                                         ("group", "group-delete", "delete", None),
                                         ("single", "group", "hit", 3),
                                         ("single", "group-miss", "miss", None)):
        value = f.get(label, group, "mops")
        wanted = Goal(f">= {factor} x single {single}", ratio(value, f.get("single", single, "mops")),
                      factor, unit=" x") if factor else None
        yield f"{single} in groups of 64", "Mops/s", value, wanted
    for what, name in (("insert", "insert"), ("hit", "hit"), ("miss", "miss"),
                       ("only the loads of a hit", "floor"),
                       ("delete", "delete"), ("insert in groups of 64", "group-insert"),
                       ("delete in groups of 64", "group-delete"),
                       ("hit in groups of 64", "group"), ("miss in groups of 64", "group-miss")):
        yield f"{what}, pages of 2 MB", "Mops/s", f.get("large", name, "mops"), None
    most, before = (f.get(label, "grow", "load_most") for label in ("growth", "first_growth"))
    yield ("greatest load factor while growing", "", most,
           Goal(f">= {number(before)}, the first version's, less 1 %", most, before * 0.99) if before else None)
    here, before = f.get("ab", "space", "this_bytes"), f.get("ab", "space", "first_bytes")
    yield ("bytes per entry, beside the first version", "B", here,
           Goal(f"<= {number(before)}, the first version's, and 1 %", here, before * 1.01, True) if before else None)
    each = f.get("growth", "grow", "bytes_average")
    yield "bytes per entry while growing, average", "B", each, Goal("<= 20", each, 20, True)
    most = f.get("growth", "grow", "bytes_most")
    yield "bytes per entry while growing, most", "B", most, Goal("<= 30", most, 30, True)
    own = ratio(f.get("timeline", "pauses", "p99.999"), 1000)
    limits = {"p99.9": ("<= 4", 4),
              "p99.999": (f"<= {number(own + 10)}, the machine's own and 10", own + 10)}
    for name in ("p50", "p99", "p99.9", "p99.99", "p99.999", "max"):
        value = ratio(f.get("timeline", "timeline", name), 1000)
        text, limit = limits.get(name, (None, None))
        yield (f"latency of an insert, {name}", "us", value,
               Goal(text, value, limit, True) if text else None)
    for name in ("p99.99", "p99.999", "max"):
        yield (f"latency of an insert while the file grows, {name}", "us",
               ratio(f.get("unreserved", "timeline", name), 1000), None)
    for name in ("p99.99", "p99.999", "max"):
        yield (f"machine: work on one cache line, {name}", "us",
               ratio(f.get("timeline", "pauses", name), 1000), None)
    growing, alone = f.get("mixed", "mixed", "growing"), f.get("mixed", "mixed", "alone")
    yield "look-ups, at rest", "Mops/s", alone, None
    yield "look-ups, beside another reader", "Mops/s", f.get("mixed", "mixed", "beside"), None
    yield ("look-ups, while the table grows", "Mops/s", growing,
           Goal(">= 0.8 x at rest", ratio(growing, alone), 0.8, unit=" x"))
    for values, each in ((1, "drawn from as many keys"), (10, "ten values a key")):
        for theta in ("0.5", "0.8"):
            for what, text in (("insert", "insert"), ("search", "all values of a key")):
                value = f.get(f"zipf_{values}", f"zipf_{what}_{theta}", "mops")
                before = f.get(f"first_zipf_{values}", f"zipf_{what}_{theta}", "mops")
                yield (f"duplicates, zipf {theta}, {each}: {text}", "Mops/s", value,
                       Goal(f">= 1.5 x the first version's {number(before)}", ratio(value, before), 1.5, unit=" x")
                       if before else None)
    recover = f.get("single", "recover", "ms")
    yield "recovery", "ms", recover, Goal("<= 5", recover, 5, True)


def goal_table(f):
    rows = [[label, unit, number(value)] + (goal.cells() if goal else ["", "", ""])
            for label, unit, value, goal in goals(f)]
    return markdown_table(["figure", "unit", "pmhash", "goal", "reached", ""], rows)


def count_table(f):
    rows = []
    for name in ("insert", "group-insert", "delete", "group-delete", "hit", "miss"):
        cells = [f.get("count", name, what)
                 for what in ("stores", "flushed_lines", "fences", "copied_bytes", "locks")]
        cells += [f.get("lines", name, what) for what in ("file_lines", "lock_lines")]
        rows.append([name] + [number(cell) for cell in cells])
    return markdown_table(["per operation", "stores", "lines flushed", "fences",
                           "bytes copied past the cache", "locks", "lines of the file touched",
                           "of the lock table"], rows)


def resizing_table(f):
    rows = []
    for kind in KINDS:
        name = f"timeline_{kind}"
        count = f.get("timeline", name, "count")
        if count is None:
            continue
        times = [number(f.get("timeline", name, what) / 1000) for what in ("mean", "p50", "p99", "max")]
        rows.append([KIND_TEXT[kind], f"{count:,.0f}"] + times +
                    [f"{100 * f.get('timeline', name, 'share'):.1f} %"])
    return markdown_table(["an insert, and", "how many", "mean us", "p50 us", "p99 us", "longest us",
                           "of the time"], rows)


def segment_table(f):
    rows = []
    for buckets in f.labels("segment_"):
        label = f"segment_{buckets}"
        rows.append([f"{buckets} ({buckets // 4} KiB)", number(f.get(label, "timeline", "mops"))] +
                    [number(f.get(label, "timeline", p) / 1000)
                     for p in ("p99.9", "p99.99", "p99.999", "max")] +
                    [number(f.get(label, "grow", what))
                     for what in ("bytes_average", "bytes_most", "load_average", "load_most")])
    return markdown_table(["buckets of a segment", "inserts, Mops/s", "p99.9 us", "p99.99 us",
                           "p99.999 us", "longest us", "bytes per entry", "most", "load factor",
                           "most"], rows)


def skews(f):
    """(theta, average utility, bytes per entry in the end, share of entries in lists)"""
    prefix = "grow_zipf_"
    for theta in sorted({float(operation[len(prefix):]) for label, operation, *_ in f.values
                         if operation.startswith(prefix) and label == "skew"}):
        name = f"{prefix}{theta:g}"
        yield (theta, f.get("skew", name, "utility"), f.get("skew", name, "bytes_per_entry"),
               f.get("skew", name, "list_share"))


def skew_table(f):
    return markdown_table(["skew", "average utility", "bytes per entry in the end",
                           "entries in value lists"],
                          [[f"{theta:g}", number(utility), number(each), f"{100 * share:.0f} %"]
                           for theta, utility, each, share in skews(f)])


def recoveries(f):
    return [(size, f.get(f"recovery_{size}", "recover", "ms")) for size in f.labels("recovery_")]


def filter_table(rows):
    shown = []
    for row in rows:
        r = {name: float(value) for name, value in row.items()}
        shown.append([f"{r['keys']:,.0f}", number(r["load_factor"])] +
                     [f"{100 * r[s]:.0f} %" for s in ("single", "two_choice", "stash")] +
                     [f"{number(r[name])} / {number(r[name + '_filter'])}"
                      f" ({number(r[name + '_filter'] / r[name])} x)"
                      for name in FILTER_FIGURES])
    return markdown_table(["keys", "load factor", "single", "two choice", "stash"] +
                          list(FILTER_FIGURES.values()), shown)


# ---- charts ----

def columns(rows, *names):
    return [[float(row[name]) for row in rows] for name in names]


def millions(axis):
    axis.set_xlabel("entries, millions")


def draw_throughput(f, directory):
    names = ("insert", "hit", "miss", "delete")
    groups = {"one thread": [f.get("single", n, "mops") for n in names],
              "two threads": [f.get("two", n, "mops", 2) for n in names],
              "one thread, groups of 64": [f.get("group", "group-insert", "mops"),
                                           f.get("single", "group", "mops"),
                                           f.get("single", "group-miss", "mops"),
                                           f.get("group", "group-delete", "mops")]}
    page, axis = pyplot.subplots(figsize=(8, 4))
    for i, (label, values) in enumerate(groups.items()):
        bars = axis.bar([x + 0.27 * (i - 1) for x in range(len(names))], values, 0.25, label=label)
        axis.bar_label(bars, [number(v) for v in values], fontsize=7)
    axis.set_xticks(range(len(names)), names)
    axis.set_ylabel("Mops/s")
    axis.legend(fontsize=8)
    save(page, directory, "engine_throughput.png")


def draw_latency(rows, directory):
    entries, p50, p99, most, splits, grows, load = columns(
        rows, "entries", "p50_ns", "p99_ns", "max_ns", "splits", "grows", "load_factor")
    at = [n / 1e6 for n in entries]
    page, (upper, lower) = pyplot.subplots(2, 1, figsize=(10, 6), sharex=True,
                                           gridspec_kw={"height_ratios": [2, 1]})
    for values, label in ((most, "longest"), (p99, "p99"), (p50, "p50")):
        upper.plot(at, [v / 1e3 for v in values], label=label, linewidth=0.8)
    upper.axhline(40, color="#999999", linestyle=":", linewidth=0.8)
    upper.set_yscale("log")
    upper.set_ylabel("latency of an insert, us")
    upper.legend(fontsize=8, loc="upper left")
    lower.fill_between(at, splits, label="splits", alpha=0.7, step="mid")
    lower.plot(at, grows, label="segments grown", linewidth=0.8, color="#ccbb44")
    lower.set_ylabel("in each thousandth")
    lower.legend(fontsize=8, loc="upper left")
    other = lower.twinx()
    other.plot(at, load, color="#888888", linewidth=0.8)
    other.set_ylabel("load factor")
    millions(lower)
    save(page, directory, "engine_latency.png")


def draw_growth(rows, directory):
    entries, each, load, single, two, stash = columns(
        rows, "entries", "bytes_per_entry", "load_factor", "single", "two_choice", "stash")
    at = [n / 1e6 for n in entries]
    page, axes = pyplot.subplots(3, 1, figsize=(10, 8), sharex=True)
    axes[0].plot(at, load, linewidth=0.9)
    axes[0].set_ylabel("load factor")
    axes[0].set_ylim(0, 1)
    axes[1].stackplot(at, single, two, stash, labels=("single", "two choice", "stash"), alpha=0.8)
    axes[1].set_ylabel("segments by strategy")
    axes[1].legend(fontsize=8, loc="lower left")
    axes[2].plot(at, each, linewidth=0.9)
    axes[2].axhline(30, color="#999999", linestyle=":", linewidth=0.8)
    axes[2].axhline(20, color="#999999", linestyle=":", linewidth=0.8)
    axes[2].set_ylim(0, 40)
    axes[2].set_ylabel("bytes per entry")
    axes[2].set_xscale("log")
    millions(axes[2])
    save(page, directory, "engine_growth.png")


def draw_skew(f, directory):
    theta, utility, each, share = zip(*skews(f))
    page, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.5))
    left.plot(theta, utility, marker="o", label="average utility")
    left.plot(theta, share, marker="s", label="entries in value lists")
    left.set_ylim(0)
    left.legend(fontsize=8)
    right.plot(theta, each, marker="o")
    right.set_ylim(0)
    right.set_ylabel("bytes per entry in the end")
    for axis in (left, right):
        axis.set_xlabel("zipf skew, ten values a key on average")
    save(page, directory, "engine_skew.png")


def draw_resizing(f, directory):
    kinds = [k for k in KINDS if f.get("timeline", f"timeline_{k}", "count")]
    page, axes = pyplot.subplots(1, 3, figsize=(12, 3.5))
    for axis, what, label, scale in ((axes[0], "count", "how many inserts", 1),
                                     (axes[1], "mean", "mean latency, us", 1e-3),
                                     (axes[2], "max", "longest, us", 1e-3)):
        values = [f.get("timeline", f"timeline_{k}", what) * scale for k in kinds]
        axis.bar_label(axis.bar(kinds, values), [number(v) for v in values], fontsize=7)
        axis.set_yscale("log")
        axis.set_title(label, fontsize=9)
        axis.tick_params(labelsize=7)
    save(page, directory, "engine_resizing.png")


def draw_recovery(f, directory):
    sizes, times = zip(*recoveries(f))
    page, axis = pyplot.subplots(figsize=(6, 3.5))
    axis.plot([s / 1e6 for s in sizes], times, marker="o")
    axis.set_xscale("log")
    axis.set_ylim(0)
    axis.set_ylabel("recovery, ms")
    millions(axis)
    save(page, directory, "engine_recovery.png")


def draw_segments(f, directory):
    sizes = f.labels("segment_")
    page, axes = pyplot.subplots(1, 3, figsize=(12, 3.5))
    for name in ("p99.9", "p99.99", "p99.999", "max"):
        axes[0].plot(sizes, [f.get(f"segment_{s}", "timeline", name) / 1e3 for s in sizes],
                     marker="o", label=name)
    axes[0].axhline(40, color="#999999", linestyle=":")
    axes[0].set_yscale("log")
    axes[0].set_title("latency of an insert, us", fontsize=9)
    axes[0].legend(fontsize=7)
    axes[1].plot(sizes, [f.get(f"segment_{s}", "timeline", "mops") for s in sizes], marker="o")
    axes[1].set_ylim(0)
    axes[1].set_title("inserts, Mops/s", fontsize=9)
    for name, label in (("bytes_average", "average"), ("bytes_most", "most")):
        axes[2].plot(sizes, [f.get(f"segment_{s}", "grow", name) for s in sizes], marker="o",
                     label=label)
    axes[2].set_ylim(0)
    axes[2].set_title("bytes per entry while growing", fontsize=9)
    axes[2].legend(fontsize=7)
    for axis in axes:
        axis.set_xscale("log", base=2)
        axis.set_xticks(sizes, [str(s) for s in sizes])
        axis.set_xlabel("buckets of a segment")
    save(page, directory, "engine_segments.png")


def draw_filter(rows, directory):
    page, axes = pyplot.subplots(1, len(FILTER_FIGURES), figsize=(16, 3.5))
    for axis, (name, title) in zip(axes, FILTER_FIGURES.items()):
        load, without, with_ = columns(sorted(rows, key=lambda r: float(r["load_factor"])),
                                       "load_factor", name, name + "_filter")
        axis.plot(load, without, marker="o", label="fingerprints alone")
        axis.plot(load, with_, marker="s", label="filter in DRAM in front")
        axis.set_ylim(0)
        axis.set_title(f"{title}, Mops/s", fontsize=9)
        axis.set_xlabel("load factor")
    axes[0].legend(fontsize=8)
    save(page, directory, "engine_filter.png")


def report(directory, machine):
    f = Figures(read_rows(os.path.join(directory, "engine.csv")))
    latency, growth, filter_ = (read_rows(os.path.join(directory, f"engine_{name}.csv"))
                                for name in ("latency", "growth", "filter"))
    draw_throughput(f, directory)
    draw_latency(latency, directory)
    draw_growth(growth, directory)
    draw_skew(f, directory)
    draw_resizing(f, directory)
    draw_recovery(f, directory)
    draw_segments(f, directory)
    draw_filter(filter_, directory)
    keys = f.get("single", "insert", "entries")
    false_positives = median(float(row["false_positive"]) for row in filter_)
    recovery = markdown_table(["entries", "recovery, ms"],
                              [[f"{size:,}", number(ms)] for size, ms in recoveries(f)])
    with open(os.path.join(directory, "engine.md"), "w") as out:
        out.write(f"""# The engine by itself

Written by `bench/run.sh`; [../README.md](../README.md) says what each figure means.

{machine_text(machine)}- file on: tmpfs, every store flushed and fenced as for persistent memory

## Goals

{keys:,.0f} keys of 8 bytes; medians of 3 runs; growth once (it does not depend on time). "The
first version" is edd8e36: in one process with this one, slices of operations in rotation, the median of
the ratios of slices (`pmh_ab`); duplicates by its own `pmh_bench` in turn. shared/anchors has the ratios
of published tables to it, taken the same way. "reached" is the ratio or the value.

{goal_table(f)}
![throughput](engine_throughput.png)

## What an operation does

Counted, growth and splits included; lines touched (read or written) are those of single operations
as valgrind's lackey sees them.

{count_table(f)}
## Latency of inserts over time

![latency](engine_latency.png)

## Resizing

By what an insert has set off; the most far-reaching counts. Clock: {number(f.get("single", "machine", "clock_ns"))} ns a reading.

{resizing_table(f)}
![resizing](engine_resizing.png)

## Load factor, strategies and space while growing

![growth](engine_growth.png)

## Size of segments

{keys / 2:,.0f} keys, one run each.

{segment_table(f)}
![segments](engine_segments.png)

## Memory utilisation by skew

{keys / 2:,.0f} values of a tenth as many keys. Utility: 16 bytes an entry over the bytes in use, averaged
over the time of inserting.

{skew_table(f)}
![skew](engine_skew.png)

## Recovery

{recovery}
![recovery](engine_recovery.png)

## A filter in DRAM

Mops/s without the filter / with it; "alone": no look-up begins before the last is done. {number(f.get("filter", "filter", "bytes_per_key"))} bytes a key,
{100 * false_positives:.2f} % false positives, made of a table as it stands in {number(f.get("filter", "filter", "rebuild_ns"))} ns a key.

{filter_table(filter_)}
![filter](engine_filter.png)
""")

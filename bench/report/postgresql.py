"""Tables and charts of btree, hash and pmhash inside PostgreSQL."""

import os

from common import (COLOURS, Goal, machine_text, markdown_table, median, number, pyplot, read_rows,
                    save)

METHODS = ("none", "btree", "hash", "pmhash")
INDEXED = METHODS[1:]

WORKLOADS = {
    "uniform": "random bigint",
    "zipf_05": "zipf 0.5, {rows} rows a key",
    "zipf_08": "zipf 0.8, {rows} rows a key",
    "zipf_099": "zipf 0.99, {rows} rows a key",
    "graph": "edges of a power-law graph by their source, {rows} a vertex",
    "url": "URLs of 80 bytes",
    "uuid": "uuid",
    "composite": "(integer, bigint)",
}


class Samples:
    """What was measured, by metric, method and round."""

    def __init__(self, rows):
        self.value = {}
        for row in rows:
            key = (row["metric"], row["method"])
            self.value.setdefault(key, {})[int(row["round"])] = float(row["value"])

    def median(self, metric, method):
        return median(self.value.get((metric, method), {}).values())

    def cost(self, metric, method):
        """What the index adds: the difference to no index, within each round."""
        rounds = self.value.get((metric, method), {})
        none = self.value.get((metric, "none"), {})
        return median(rounds[r] - none[r] for r in rounds if r in none)

    def range(self, metric, method):
        values = self.value.get((metric, method), {}).values()
        return (min(values), max(values)) if values else None

    def medians(self, metric):
        return {method: self.median(metric, method) for method in METHODS}

    def costs(self, metric):
        return {method: self.cost(metric, method) for method in INDEXED}


def times(values, other, larger_is_better=False):
    """How many times better pmhash is than another method, or the best of several."""
    others = [values[m] for m in other if values.get(m) is not None]
    mine = values.get("pmhash")
    if not others or not mine:
        return None
    if larger_is_better:
        return mine / max(others)
    return min(others) / mine if mine > 0 else float("inf")


def better(values, factor, other, larger_is_better=False):
    names = " and ".join(other) if len(other) == 1 else "the better of the two"
    return Goal(f">= {factor} x {names}", times(values, other, larger_is_better), factor,
                unit=" x")


def at_most(values, factor, other):
    ratio = times(values, (other,))
    return Goal(f"<= {factor} x {other}", 1 / ratio if ratio else None, factor, True, " x")


def defaults(samples, machine):
    """The same of what users meet by default (issue 35): figure, unit, metric, goal."""
    chunks, many = machine.get("chunks"), machine.get("connections")
    dead, wal = samples.medians("vacuum_dead"), samples.medians("vacuum_wal")
    wal = {m: wal[m] / dead[m] if dead[m] else None for m in METHODS}
    yield ("VACUUM after deleting half: WAL of the index, per dead row", "B", wal,
           [Goal("<= 1", wal["pmhash"], 1, True, " B")])
    few = samples.medians("few_vacuum_index")
    yield (f"1,000 dead of {machine.get('few rows')} rows: VACUUM, in the index", "s", few,
           [at_most(few, 0.55, "hash")])
    for label, unit, metric, factor in (
            (f"{chunks} tables of 400 rows: bytes of an index", "B", "chunk_size", 1.2),
            (f"{chunks} tables of 400 rows: VACUUM of all", "s", "chunks_vacuum", 1.2),
            ("bytes per entry after five changes of all keys", "B", "churn_size", 1.0),
            ("one row a transaction, bigserial", "us", "single_serial", 1.0),
            ("one row a transaction, uuid of version 7", "us", "single_uuid_7", 1.0),
            ("first look-up of a connection", "us", "first_look_up", 1.1),
            (f"{many} connections to {many} tables: processor time of each", "ms", "session", 1.1),
            ("the same: page tables of each", "MB", "page_tables", 1.1)):
        values = samples.medians(metric)
        yield label, unit, values, [at_most(values, factor, "btree")]
    plan = samples.costs("plan")
    yield ("planning a query with a btree: what a second index costs", "us", plan,
           [Goal("<= 0.5", plan["pmhash"], 0.5, True, " us")])


def goals(samples, machine):
    """(figure, unit, values by method, goals), in the order of the issue."""
    both = ("btree", "hash")
    build = samples.medians("build")
    size = samples.medians("size")
    growing = samples.medians("growing")
    thousand = samples.medians("thousand")
    hit, miss = samples.medians("hit"), samples.medians("miss")
    only_hit = samples.medians("only_hit")
    any_, constant = samples.medians("any"), samples.medians("any_constant")
    wal = samples.medians("wal")
    scan = samples.median("scan", "pmhash")
    insert, copy = samples.costs("insert"), samples.costs("copy")
    vacuum = samples.medians("vacuum_index")
    low = {name: samples.costs(f"low_{name}") for name in ("insert",)}
    low.update({name: samples.medians(f"low_{name}")
                for name in ("lookup", "count", "vacuum_index")})

    def of_scan(value):
        return value / scan if value and scan else None

    build_serial = samples.medians("build_serial")
    yield ("CREATE INDEX, parallel workers where granted", "s", build,
           [better(build, 5, ("btree",)), better(build, 10, ("hash",)),
            Goal(f"<= 1.6 x a sequential scan ({number(scan)} s)", of_scan(build["pmhash"]), 1.6,
                 True, " x")])
    yield ("CREATE INDEX, no parallel workers", "s", build_serial,
           [better(build_serial, 5, ("btree",)), better(build_serial, 10, ("hash",)),
            Goal("<= 1.6 x a sequential scan", of_scan(build_serial["pmhash"]), 1.6, True, " x")])
    yield ("bytes per entry, built, unique keys", "B", size,
           [Goal("<= 16", size["pmhash"], 16, True, " B")])
    yield ("bytes per entry, average while growing from empty", "B", growing,
           [Goal("<= 20", growing["pmhash"], 20, True, " B")])
    yield ("bytes per entry, built, 1,000 distinct values", "B", thousand,
           [Goal("<= 7", thousand["pmhash"], 7, True, " B")])
    yield ("the same, a fifth inserted besides", "B", samples.medians("thousand_grown"), [])
    for rows, built, inserted in ((10, 12.5, 10), (30, 8.5, 9.5), (1000, 7, 9)):
        for how, wanted in (("built", built), ("inserted", inserted)):
            values = samples.medians(f"rows_{rows}_{how}")
            yield (f"bytes per entry, {how}, {rows:,} rows a key", "B", values,
                   [Goal(f"<= {wanted}", values["pmhash"], wanted, True, " B")])
    yield ("nested-loop probe, miss", "us", miss, [better(miss, 3.3, both)])
    yield ("nested-loop probe, hit", "us", hit, [better(hit, 1.6, both)])
    yield ("index-only probe, hit (hash: with the heap)", "us", only_hit,
           [better(only_hit, 4, ("btree",))])
    yield (f"= ANY of {int(machine['keys']):,} keys (sub-query), per key", "us", any_,
           [better(any_, 6, ("btree",))])
    yield (f"= ANY of {int(machine['keys']):,} keys (constant), per key", "us", constant,
           [better(constant, 6, ("btree",))])
    yield ("INSERT ... SELECT, per row", "us", samples.medians("insert"), [])
    yield ("of it, what the index costs", "us", insert,
           [better(insert, 10, ("btree",)), better(insert, 6, ("hash",))])
    yield ("COPY, per row", "us", samples.medians("copy"), [])
    yield ("of it, what the index costs", "us", copy,
           [better(copy, 10, ("btree",)), better(copy, 6, ("hash",))])
    yield ("WAL per inserted row", "B", wal,
           [Goal("<= 16 more than without an index", wal["pmhash"] - wal["none"]
                 if wal["pmhash"] else None, 16, True, " B")])
    yield ("VACUUM after deleting half, in all", "s", samples.medians("vacuum"), [])
    yield ("of it, in the index", "s", vacuum, [better(vacuum, 6, ("hash",))])
    for n in (1, 2):
        select = samples.medians(f"select_{n}")
        yield (f"pgbench -S, prepared, {n} client{'s' * (n > 1)}", "tps", select,
               [better(select, 1.05, both, True)])
    yield ("10 distinct values: INSERT, what the index costs, per row", "us", low["insert"],
           [better(low["insert"], 5, ("hash",))])
    yield ("10 distinct values: all rows of a value, per row", "ns", low["lookup"],
           [better(low["lookup"], 5, ("hash",))])
    yield ("10 distinct values: count(*) of a value, per row", "ns", low["count"],
           [better(low["count"], 5, ("hash",))])
    yield ("10 distinct values: VACUUM, in the index", "s", low["vacuum_index"],
           [better(low["vacuum_index"], 5, ("hash",))])
    yield ("10 distinct values: CREATE INDEX", "s", samples.medians("low_build"), [])
    yield ("10 distinct values: bytes per entry", "B", samples.medians("low_size"), [])
    yield from defaults(samples, machine)


def goal_table(figures):
    rows = []
    for label, unit, values, wanted in figures:
        cells = [number(values.get(m)) for m in METHODS]
        rows.append([label, unit] + cells + (wanted[0].cells() if wanted else ["", "", ""]))
        rows += [["", "", "", "", "", ""] + goal.cells() for goal in wanted[1:]]
    return markdown_table(["figure", "unit"] + list(METHODS) + ["goal", "reached", ""], rows)


def workload_figures(samples, machine):
    """(workload, figure, unit, values)"""
    for name, label in WORKLOADS.items():
        label = label.format(rows=machine.get(f"rows of a hit, hit_{name}", "?"))
        for metric, what, unit in (("build", "CREATE INDEX", "s"), ("size", "bytes per entry", "B"),
                                   ("hit", "probe, hit", "us"), ("miss", "probe, miss", "us")):
            yield label, what, unit, samples.medians(f"{name}_{metric}")
        yield label, "INSERT, index's cost per row", "us", samples.costs(f"{name}_insert")


def workload_table(figures):
    rows = []
    previous = None
    for label, what, unit, values in figures:
        ratio = times(values, ("btree", "hash"))
        rows.append(["" if label == previous else label, what, unit] +
                    [number(values.get(m)) for m in INDEXED] +
                    [number(ratio) + " x" if ratio else "-"])
        previous = label
    return markdown_table(["keys", "figure", "unit"] + list(INDEXED) + ["better"], rows)


def range_table(samples):
    """Every metric as it was measured: median (least - most) of the rounds."""
    rows = []
    for metric in sorted({metric for metric, _ in samples.value}):
        cells = []
        for method in METHODS:
            span = samples.range(metric, method)
            cells.append("-" if span is None else f"{number(samples.median(metric, method))} "
                         f"({number(span[0])} - {number(span[1])})")
        rows.append([f"`{metric}`"] + cells)
    return markdown_table(["metric"] + list(METHODS), rows)


def draw_bars(figures, columns, directory, name, title):
    """A small chart for each figure: bars of the methods."""
    figures = [f for f in figures if any(v is not None for v in f[1].values())]
    lines = (len(figures) + columns - 1) // columns
    page, axes = pyplot.subplots(lines, columns, figsize=(3 * columns, 2.3 * lines), squeeze=False)
    for axis in axes.flat[len(figures):]:
        axis.axis("off")
    for axis, (label, values) in zip(axes.flat, figures):
        shown = [m for m in METHODS if values.get(m) is not None]
        bars = axis.bar(shown, [values[m] for m in shown], color=[COLOURS[m] for m in shown])
        axis.bar_label(bars, [number(values[m]) for m in shown], fontsize=7)
        axis.margins(y=0.15)
        axis.set_title(label, fontsize=7)
        axis.tick_params(labelsize=7)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    page.suptitle(title, fontsize=10)
    save(page, directory, name)


def wrapped(text, width=38):
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) + 1 > width:
            lines.append("")
        lines[-1] = (lines[-1] + " " + word).strip()
    return "\n".join(lines)


def report(directory, machine):
    path = os.path.join(directory, "postgresql.csv")
    samples = Samples(read_rows(path))
    figures = list(goals(samples, machine))
    workloads = list(workload_figures(samples, machine))
    rounds = int(machine["rounds"])
    draw_bars([(wrapped(f"{label} ({unit})"), values) for label, unit, values, _ in figures], 5,
              directory, "postgresql.png", f"{int(machine['rows']):,} rows of bigint and text")
    draw_bars([(wrapped(f"{label}: {what} ({unit})"), values)
               for label, what, unit, values in workloads], 5, directory, "workloads.png",
              f"{int(machine['work rows']):,} rows")
    with open(os.path.join(directory, "postgresql.md"), "w") as out:
        out.write(f"""# btree, hash and pmhash

Written by `bench/run.sh`; [../README.md](../README.md) says what each figure means.

{machine_text(machine)}- answers compared with those of sequential scans, all the same: {machine['answers compared']}

## Goals

{int(machine['rows']):,} rows of random `bigint` and text; {int(machine['probes']):,} probes,
{int(machine['fresh']):,} rows inserted and as many copied in each round; pgbench at scale
{machine['scale']}. Medians of {rounds} rounds; but bytes per entry while growing and of 1,000 distinct
values are those of one run (they do not depend on time), and `= ANY` of a sub-query was asked of
hash once. "10 distinct values" has {int(machine['low rows']):,} rows: hash needs a time in proportion to the
square of the rows of a value. "reached" is how many times better pmhash is, or its value.

{goal_table(figures)}
![all figures](postgresql.png)

## Other keys

{int(machine['work rows']):,} rows, medians of {rounds} rounds; a probe set has each key once, whatever its
frequency. There are no hash indexes on several columns. "better": pmhash against the better of the two.

{workload_table(workloads)}
![other keys](workloads.png)

## As measured

Median (least - most); times in seconds, microseconds or nanoseconds as above, raw in
[postgresql.csv](postgresql.csv).

{range_table(samples)}""")

"""Table and chart of what the planner chooses for joins, beside each other way."""

import os

from common import machine_text, markdown_table, number, pyplot, read_rows, save

WAYS = (("hash join", "#4477aa", "s"), ("merge join", "#66ccee", "D"),
        ("nested loop, btree", "#228833", "^"), ("nested loop, hash", "#ccbb44", "v"),
        ("nested loop, pmhash", "#ee6677", "<"), ("memoize", "#bbbbbb", ">"),
        ("pmhash join", "#aa3377", "o"))
# What is said of the planner: at most so many times the best of the others.
LIMIT = 1.05


def value(row, name):
    return float(row[name]) if row[name] else None


def best_other(row):
    return min(value(row, name) for name, _, _ in WAYS if name != "pmhash join" and row[name])


def short(rows):
    """1000000 as 1 M."""
    for size, unit in ((1000000, " M"), (1000, " k")):
        if rows >= size:
            return f"{rows // size}{unit}"
    return str(rows)


def label(row):
    text = f"{row['kind']}: {short(int(row['outer_rows']))} x {short(int(row['inner_rows']))}"
    if row["per_key"] != "1":
        text += f", {row['per_key']} a key"
    if row["hits"] != "100":
        text += f", {row['hits']} % there"
    if row["workers"] != "0":
        text += f", {row['workers']} workers"
    return text + ("" if row["cached"] == "t" else ", not cached")


def draw(rows, directory):
    page, axis = pyplot.subplots(figsize=(10, 1.5 + 0.24 * len(rows)))
    for name, colour, marker in WAYS:
        points = [(value(row, name) / best_other(row), i) for i, row in enumerate(rows) if row[name]]
        axis.plot([x for x, _ in points], [y for _, y in points], marker, color=colour,
                  label=name, markersize=5)
    axis.plot([value(row, "ms") / best_other(row) for row in rows], range(len(rows)), "o",
              markerfacecolor="none", markeredgecolor="black", markersize=10, label="chosen")
    axis.axvline(LIMIT, color="black", linewidth=0.8, linestyle=":")
    axis.set_yticks(range(len(rows)))
    axis.set_yticklabels([label(row) for row in rows], fontsize=7)
    axis.invert_yaxis()
    axis.set_xscale("log")
    low, high = axis.get_xlim()
    ticks = [x for x in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 1000) if low <= x <= high]
    axis.set_xticks(ticks)
    axis.set_xticklabels([f"{x:g}" for x in ticks])
    axis.set_xticks([], minor=True)
    axis.set_xlabel("time, by that of the best way that is not pmhash join")
    axis.grid(axis="x", linewidth=0.3)
    axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
    save(page, directory, "join.png")


def table(rows):
    lines = []
    for row in rows:
        lines.append([label(row), row["chosen"], number(value(row, "ms"))] +
                     [number(value(row, name)) for name, _, _ in WAYS] +
                     [number(value(row, "of others")), number(value(row, "of all"))])
    return markdown_table(["kind: outer x inner rows", "chosen", "ms"] + [name for name, _, _ in WAYS] +
                          ["of the best other", "of the best"], lines)


def report(directory, machine):
    rows = read_rows(os.path.join(directory, "join.csv"))
    over = [row for row in rows if value(row, "of others") > LIMIT]
    missed = [row for row in rows if value(row, "of all") > (1.15 if row["cached"] == "t" else 1.2)]
    with open(os.path.join(directory, "join.md"), "w") as out:
        out.write(f"""# What the planner chooses for joins

Written by `bench/join.sh --grid`; [../README.md](../README.md#joins) says how it is taken.

{machine_text(machine)}
Milliseconds of a statement, planning included: processor time where nothing is waited for,
elapsed time with workers and with nothing cached. "Of the best other": by the best way that is
not pmhash join; above {LIMIT} in {len(over)} of {len(rows)}. Of the best: goal 1.15, with
nothing cached 1.2; missed in {len(missed)}.

{table(rows)}
![times by that of the best other way](join.png)
""")
    draw(rows, directory)

"""Tables of the figures of a script that notes them with bench/lib/report.sh."""

import os

from common import Goal, machine_text, markdown_table, median, number, read_rows

# figure: whose value the goal is a multiple of (none: it is a value), and at most how much.
GOALS = {
    "WAL, alone": ((), 32),
    "replay of VACUUM, half dead": (("btree",), 1.0),
    "look-up": (("btree", "hash"), 1.0), "miss": (("btree", "hash"), 1.0),
    "join": (("btree", "hash"), 1.0), "insert of 100": (("btree", "hash"), 1.0),
    "read by a miss": ((), 8), "insert of 100, p99": (("btree", "hash"), 1.2),
    "first 100,000 look-ups": (("btree", "hash"), 0.5),
    "planned join": (("best way",), 1.2),
}


def goal_of(figure, values):
    """Figures of a kind have more words after a colon."""
    others, factor = GOALS.get(figure.split(":")[0], ((), None))
    mine = values.get("pmhash", values.get("planned"))
    given = [values[m] for m in others if m in values]
    if factor is None or mine is None or len(given) < len(others):
        return ["", "", ""]
    text = f"<= {factor}" + (f" x {' or '.join(others)}" if others else "")
    return Goal(text, mine / min(given) if given else mine, factor, True).cells()


def report(directory, name, machine):
    figures = {}
    for row in read_rows(os.path.join(directory, name + ".csv")):
        values = figures.setdefault((row["figure"], row["rows"], row["unit"]), {})
        values.setdefault(row["method"], []).append(float(row["value"]))
    with open(os.path.join(directory, name + ".md"), "w") as out:
        out.write(f"# Figures of bench/{name}.sh\n\nWritten by it, medians; [../README.md](../README.md) "
                  f"says how each is taken.\n\n{machine_text(machine)}")
        for methods in (("none", "off", "btree", "hash", "pmhash"),
                        ("planned", "hash join", "pmhash join", "nested loop", "best way")):
            lines = []
            for (figure, rows, unit), values in figures.items():
                values = {method: median(value) for method, value in values.items()}
                values["best way"] = min(values.values())
                if any(method in values for method in methods[:-1]):
                    lines.append([figure, rows, unit] + [number(values.get(m)) for m in methods] +
                                 goal_of(figure, values))
            if lines:
                out.write("\n" + markdown_table(["figure", "rows", "unit", *methods, "goal", "reached",
                                                 ""], lines))

"""Table and chart of what writers notice of a rebuild."""

import os

from common import COLOURS, machine_text, markdown_table, number, pyplot, read_rows, save

QUANTILES = (("longest", "longest"), ("p999", "p99.9"), ("p99", "p99"), ("p50", "p50"))


def by_size(rows):
    sizes = {}
    for row in rows:
        sizes.setdefault(int(row["rows"]), []).append(row)
    return sorted(sizes.items())


def phase_table(phases):
    lines = []
    for row in phases:
        seconds = float(row["lasted"])
        rate = int(row["transactions"]) / seconds if seconds > 0 else None
        lines.append([f"{int(row['rows']):,}", row["phase"], number(seconds), number(rate)] +
                     [number(float(row[name])) for name in ("p50", "p99", "p999", "longest")])
    return markdown_table(["rows", "phase", "seconds", "transactions/s", "p50, ms", "p99", "p99.9",
                           "longest"], lines)


def draw(seconds, phases, directory):
    sizes = by_size(seconds)
    page, axes = pyplot.subplots(len(sizes), 1, figsize=(10, 4 * len(sizes)), squeeze=False)
    for (size, rows), axis in zip(sizes, axes[:, 0]):
        at = [int(row["second"]) for row in rows]
        for name, label in QUANTILES:
            axis.plot(at, [float(row[name]) for row in rows], label=label, linewidth=0.9)
        for row in phases:
            if int(row["rows"]) == size and row["phase"] == "during":
                since = float(row["since"])
                axis.axvspan(since, since + float(row["lasted"]), color=COLOURS["none"], alpha=0.4,
                             label="rebuild")
        axis.set_yscale("log")
        axis.set_title(f"{size:,} rows", fontsize=9)
        axis.set_xlabel("seconds")
        axis.set_ylabel("latency of a transaction, ms")
        axis.legend(fontsize=8, loc="upper left")
    save(page, directory, "rebuild.png")


def report(directory, machine):
    phases = read_rows(os.path.join(directory, "rebuild.csv"))
    draw(read_rows(os.path.join(directory, "rebuild_seconds.csv")), phases, directory)
    with open(os.path.join(directory, "rebuild.md"), "w") as out:
        out.write(f"""# Writers beside a rebuild

Written by `bench/rebuild.sh`; [../README.md](../README.md) says what each figure means.

{machine_text(machine)}- clients that write: {machine['clients']}

{phase_table(phases)}
![latencies by second](rebuild.png)

By second in [rebuild_seconds.csv](rebuild_seconds.csv).
""")

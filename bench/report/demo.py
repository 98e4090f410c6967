"""Draw the figures of bench/demo.sh: one bar each for btree, hash and pmhash, less is better.

usage: demo.py FIGURES.csv CHART.png

FIGURES.csv has columns label, unit, method, value.
"""

import sys

from common import COLOURS, number, pyplot, read_rows


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    charts = {}
    for row in read_rows(sys.argv[1]):
        charts.setdefault((row["label"], row["unit"]), []).append(row)
    columns = 4
    lines = (len(charts) + columns - 1) // columns
    figure, axes = pyplot.subplots(lines, columns, figsize=(12, 2.4 * lines), squeeze=False)
    for axis in axes.flat[len(charts):]:
        axis.axis("off")
    for axis, ((label, unit), rows) in zip(axes.flat, charts.items()):
        bars = axis.barh([row["method"] for row in rows], [float(row["value"]) for row in rows],
                         color=[COLOURS[row["method"]] for row in rows])
        axis.bar_label(bars, [number(float(row["value"])) for row in rows], padding=2)
        axis.set_title(f"{label}, {unit}", fontsize=8)
        axis.invert_yaxis()
        axis.margins(x=0.2)
        axis.xaxis.set_visible(False)
        axis.spines[["top", "right", "bottom"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(sys.argv[2], dpi=100)


main()

"""What the parts of the report share: tables, verdicts, colours."""

import csv
import os
import statistics

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as pyplot  # noqa: E402

COLOURS = {"none": "#bbbbbb", "btree": "#4477aa", "hash": "#ccbb44", "pmhash": "#aa3377"}


def read_pairs(path):
    """Lines "name,value" as a dictionary, in their order."""
    with open(path, newline="") as file:
        return {line[0]: line[1] for line in csv.reader(file)}


def read_rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def median(values):
    values = list(values)
    return statistics.median(values) if values else None


def number(value):
    """Three digits that count."""
    if value is None:
        return "-"
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 0.1 or size == 0 else f"{value:.3f}"


class Goal:
    """Something to be reached: at least or at most 'wanted'."""

    def __init__(self, text, reached, wanted, at_most=False, unit=""):
        self.text = text
        self.reached = reached
        self.unit = unit
        self.verdict = "not measured"
        if reached is not None:
            met = reached <= wanted if at_most else reached >= wanted
            if met:
                self.verdict = "met"
            elif at_most:
                self.verdict = f"short by {100 * (reached / wanted - 1):.0f} %"
            else:
                self.verdict = f"short by {100 * (1 - reached / wanted):.0f} %"

    def cells(self):
        return [self.text, number(self.reached) + self.unit if self.reached is not None else "-",
                self.verdict]


def markdown_table(head, rows):
    """Lines of a table; cells that are no words are aligned to the right."""
    lines = ["| " + " | ".join(head) + " |",
             "|" + "|".join(" --- " if i == 0 else " ---: " for i in range(len(head))) + "|"]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def machine_text(machine):
    """The machine, as a list."""
    shown = ["date", "revision", "processor", "L1d cache", "L2 cache", "L3 cache", "memory", "kernel",
             "data directory on", "version", "shared_buffers", "maintenance_work_mem",
             "max_parallel_maintenance_workers", "load average before", "taken earlier",
             "taken apart"]
    return "".join(f"- {name}: {machine[name]}\n" for name in shown if name in machine)


def save(figure, directory, name):
    figure.tight_layout()
    figure.savefig(os.path.join(directory, name), dpi=100)
    pyplot.close(figure)

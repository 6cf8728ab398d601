#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""gpu_report.py - one table and one JSON of what bench/gpu.sh found

  gpu_report.py WORK OUT STAMP

STAMP is the date and the backend, DATE-TIME-BACKEND.  WORK/status has a line for
each part (name, status, seconds), WORK/about one for each thing that is known of
the machine; lines of WORK/PART.log that begin with "= " are a part's figures.
Writes OUT/STAMP.json and OUT/STAMP.md, each at once: whoever is stopped leaves
the last ones.
"""
import datetime
import json
import os
import sys


def lines(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8", errors="replace") as f:
        return [line.rstrip("\n") for line in f]


def figures(path):
    found = {}
    for line in lines(path):
        if line.startswith("= "):
            name, _, value = line[2:].strip().partition(" ")
            found.setdefault(name, []).append(value)
    return found


def reason(path):
    for line in lines(path):
        if line.startswith("skipped: "):
            return line[len("skipped: "):].strip()
    return None


def write(path, text):
    with open(path + ".new", "w", encoding="utf-8") as f:
        f.write(text)
    os.replace(path + ".new", path)


def table(report):
    about = ", ".join(f"{key} {value}"
                      for key, value in report["about"].items())
    text = [f"# bench/gpu.sh, backend {report['backend']}, {report['date']}",
            "", about, "", "| part | status | s | figures |",
            "| --- | --- | ---: | --- |"]
    for name, part in report["parts"].items():
        said = part["why"] or "; ".join(
            f"{key} {', '.join(values)}"
            for key, values in part["figures"].items())
        text.append(f"| {name} | {part['status']} | {part['seconds']} | "
                    f"{said.replace('|', '/')} |")
    return "\n".join(text) + "\n"


def main():
    work, out, stamp = sys.argv[1:]
    now = datetime.datetime.now(datetime.timezone.utc)
    report = {"date": now.isoformat(timespec="seconds"),
              "backend": stamp.rpartition("-")[2], "about": {}, "parts": {}}
    for line in lines(os.path.join(work, "about")):
        key, _, value = line.partition("|")
        report["about"][key] = value
    for line in lines(os.path.join(work, "status")):
        name, status, seconds = line.rsplit("|", 2)
        log = os.path.join(work, name + ".log")
        report["parts"][name] = {
            "status": status, "seconds": int(seconds),
            "figures": figures(log), "why": reason(log)}
    stem = os.path.join(out, stamp)
    write(stem + ".json", json.dumps(report, indent=1) + "\n")
    write(stem + ".md", table(report))
    print(f"gpu.sh: {stem}.md, {stem}.json")


if __name__ == "__main__":
    main()

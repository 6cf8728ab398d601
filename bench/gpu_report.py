#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""gpu_report.py - one table and one JSON of what bench/gpu.sh found

  gpu_report.py WORK OUT BACKEND

WORK/status has a line for each part (name, status, seconds); lines of
WORK/PART.log that begin with "= " are its figures.  Writes OUT/DATE.json and
OUT/DATE.md.
"""
import datetime
import json
import os
import sys


def figures(path):
    found = {}
    with open(path, encoding="utf-8", errors="replace") as f:
        for line in f:
            if line.startswith("= "):
                name, _, value = line[2:].strip().partition(" ")
                found.setdefault(name, []).append(value)
    return found


def reason(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        for line in f:
            if line.startswith("skipped: "):
                return line[len("skipped: "):].strip()
    return None


def main():
    work, out, backend = sys.argv[1:]
    now = datetime.datetime.now(datetime.timezone.utc)
    report = {"date": now.isoformat(timespec="seconds"), "backend": backend,
              "parts": {}}
    with open(os.path.join(work, "status"), encoding="utf-8") as f:
        for line in f:
            name, status, seconds = line.strip().split("|")
            log = os.path.join(work, name + ".log")
            report["parts"][name] = {
                "status": status, "seconds": int(seconds),
                "figures": figures(log), "why": reason(log)}
    stem = os.path.join(out, now.strftime("%Y%m%d-%H%M%S") + "-" + backend)
    with open(stem + ".json", "w", encoding="utf-8") as f:
        json.dump(report, f, indent=1)
        f.write("\n")
    with open(stem + ".md", "w", encoding="utf-8") as f:
        print(f"# bench/gpu.sh, backend {backend}, {report['date']}\n", file=f)
        print("| part | status | s | figures |", file=f)
        print("| --- | --- | ---: | --- |", file=f)
        for name, part in report["parts"].items():
            text = part["why"] or "; ".join(
                f"{key} {', '.join(values)}"
                for key, values in part["figures"].items())
            print(f"| {name} | {part['status']} | {part['seconds']} | "
                  f"{text.replace('|', '/')} |", file=f)
    print(f"gpu.sh: {stem}.md, {stem}.json")


if __name__ == "__main__":
    main()

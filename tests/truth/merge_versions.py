#!/usr/bin/env python3
"""Puts recordings of one list of configurations by several versions of PyTorch into one file.

    merge_versions.py OUT.jsonl RECORDED.jsonl ...

What two versions recorded alike is one row: `torch` is the first of them, `torch_also` the others.
"""
import json
import sys


def main(out, paths):
    rows = {}
    for path in paths:
        for line in open(path):
            row = json.loads(line)
            version = row.pop("torch").split("+")[0]
            same = [r for r in rows.setdefault(row["name"], []) if r[0] == row]
            if same:
                same[0][1].append(version)
            else:
                rows[row["name"]].append((row, [version]))
    with open(out, "w") as to:
        for row, versions in (r for alike in rows.values() for r in alike):
            row["torch"] = versions[0]
            if versions[1:]:
                row["torch_also"] = versions[1:]
            to.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

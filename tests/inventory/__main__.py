"""``python -m tests.inventory [--write]``: see the package's docstring."""

import json
import sys

from tests.inventory.collect import collect
from tests.inventory.lost import FILE, excused, lost, rewordings

old, new = json.loads(FILE.read_text(encoding="utf-8")), collect()
missing = lost(old, new, *excused())
for section, entries in new.items():
    for key in entries.keys() - old.get(section, {}).keys():
        print(f"new in {section}: {key}")
for before, after in rewordings(old.get("messages", ()), new["messages"]).items():
    print(f"reworded: {before}\n      as: {after}")
for section, entries in missing.items():
    for key, wrong in entries.items():
        print(f"{section}: {key}: {wrong}")
        new.setdefault(section, {})[key] = old[section][key]  # what is lost stays in the file until it is excused
if "--write" in sys.argv:
    FILE.write_text(json.dumps(new, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")

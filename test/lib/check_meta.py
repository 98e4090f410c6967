#!/usr/bin/env python3
"""check_meta.py DIRECTORY: is META.json there what PGXN's Meta Spec 1.0.0 wants, and
what the tree says of itself?  Prints what is wrong; exit status 1 then."""

import json
import os
import re
import sys

REQUIRED = ("abstract", "license", "maintainer", "meta-spec", "name", "provides", "version")
OPTIONAL = ("description", "generated_by", "no_index", "prereqs", "release_status",
            "resources", "tags")
LICENSES = ("agpl_3 apache_1_1 apache_2_0 artistic_1 artistic_2 bsd freebsd gfdl_1_2 gfdl_1_3 "
            "gpl_1 gpl_2 gpl_3 lgpl_2_1 lgpl_3_0 mit mozilla_1_0 mozilla_1_1 openssl perl_5 "
            "postgresql qpl_1_0 ssleay sun zlib open_source restricted unrestricted "
            "unknown").split()
SEMVER = re.compile(r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-?[A-Za-z][0-9A-Za-z-]*)?$")
TERM = re.compile(r"^[^\s/\\\x00-\x1f]{2,}$")
RESOURCES = {"homepage": None, "bugtracker": ("web", "mailto"),
             "repository": ("url", "web", "type")}
PHASES = ("configure", "runtime", "build", "test", "develop")
RELATIONS = ("requires", "recommends", "suggests", "conflicts")

problems = []


def need(condition, text):
    """Note what is wrong."""
    if not condition:
        problems.append(text)


def check_keys(meta):
    for key in REQUIRED:
        need(key in meta, f"{key} is missing")
    for key in meta:
        need(key in REQUIRED + OPTIONAL or key.lower().startswith("x_"), f"{key} is no key")
    need(TERM.match(meta.get("name", "")), "name")
    need(SEMVER.match(meta.get("version", "")), "version is no semantic version")
    licenses = meta.get("license")
    licenses = [licenses] if isinstance(licenses, str) else licenses
    need(licenses and all(one in LICENSES for one in licenses), "license")
    need(meta.get("meta-spec", {}).get("version") == "1.0.0", "meta-spec")
    need(meta.get("release_status", "stable") in ("stable", "testing", "unstable"),
         "release_status")
    need(all(isinstance(tag, str) and 0 < len(tag) <= 255 for tag in meta.get("tags", [])),
         "tags")
    maintainers = meta.get("maintainer")
    maintainers = [maintainers] if isinstance(maintainers, str) else maintainers
    need(maintainers and all(re.search(r"<[^@<>\s]+@[^@<>\s]+>$", one) for one in maintainers),
         "maintainer")


def check_resources(meta):
    for name, value in meta.get("resources", {}).items():
        if name not in RESOURCES:
            need(name.lower().startswith("x_"), f"resources: {name}")
        elif RESOURCES[name]:
            need(isinstance(value, dict) and value, f"resources: {name}")
            need(all(key in RESOURCES[name] for key in value), f"resources: {name}")


def check_prereqs(meta):
    for phase, relations in meta.get("prereqs", {}).items():
        need(phase in PHASES, f"prereqs: {phase}")
        for relation, modules in relations.items():
            need(relation in RELATIONS, f"prereqs: {relation}")
            for module, version in modules.items():
                need(str(version) == "0" or SEMVER.match(version), f"prereqs: {module}")


def check_provides(meta, top):
    need(meta.get("provides"), "provides is empty")
    for name, extension in meta.get("provides", {}).items():
        need(set(extension) <= {"abstract", "docfile", "file", "version"}, f"provides: {name}")
        need(SEMVER.match(extension.get("version", "")), f"provides: {name}: version")
        for key in ("file", "docfile"):
            if key in extension:
                need(os.path.isfile(os.path.join(top, extension[key])),
                     f"provides: {name}: there is no {extension[key]}")


def check_tree(meta, top):
    """What the control file, the changelogs and META.json say is one version."""
    with open(os.path.join(top, "pmhash.control"), encoding="utf-8") as control:
        version = re.search(r"default_version = '([^']*)'", control.read()).group(1)
    need(meta["version"].startswith(version + "."), f"pmhash.control has version {version}")
    with open(os.path.join(top, "debian", "changelog"), encoding="utf-8") as changelog:
        need(re.match(rf"pmhash \({re.escape(meta['version'])}-", changelog.readline()),
             "debian/changelog has another version")
    with open(os.path.join(top, "CHANGELOG.md"), encoding="utf-8") as changelog:
        need(re.search(rf"^## {re.escape(meta['version'])}\b", changelog.read(), re.M),
             "CHANGELOG.md does not know the version")
    need(meta["provides"]["pmhash"]["file"] == f"pmhash--{version}.sql",
         "provides: not the script of the default version")


def main():
    top = sys.argv[1]
    with open(os.path.join(top, "META.json"), encoding="utf-8") as file:
        meta = json.load(file)
    check_keys(meta)
    check_resources(meta)
    check_prereqs(meta)
    check_provides(meta, top)
    if not problems:
        check_tree(meta, top)
    for problem in problems:
        print(f"META.json: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

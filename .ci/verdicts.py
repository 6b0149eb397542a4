"""Judge what the tests and the checkers said, for .ci/run.

usage: verdicts.py tests LOG            print the failures in a log of `go test -json`
       verdicts.py skipped LOG...       fail where a test ran in none of the logs
       verdicts.py prefixes EXCHANGES   print a replay prefix per line, and the number of scenarios
       verdicts.py editor EDITOR EXCEPTIONS LOG...
                                        fail where `editcheck.py --verbose` said anything else than expected
"""
import collections, json, re, sys

VARIANTS = ("v0-runtime", "aci-pr155")


def events(path):
    for line in open(path, encoding="utf-8", errors="replace"):
        if line.startswith("{"):
            yield json.loads(line)


def name(event):
    return " ".join(filter(None, (event.get("Package") or event.get("ImportPath"), event.get("Test"))))


def tests(path):
    output, count = collections.defaultdict(list), collections.Counter()
    for event in events(path):
        action = event["Action"]
        if action in ("output", "build-output"):
            output[name(event)].append(event["Output"])
        elif action in ("fail", "build-fail"):
            print("".join(output[name(event)]), end="")
        if "Test" in event and action in ("pass", "fail", "skip"):
            count[action] += 1
        if action in ("pass", "fail", "skip"):
            output.pop(name(event), None)
    print(f"{count['pass']} passed, {count['fail']} failed, {count['skip']} skipped")


def skipped(paths):
    """Root and another user each leave out what only the other can test; what both leave out is not tested."""
    ran, left = set(), {}
    for path in paths:
        for event in events(path):
            if "Test" in event and event["Action"] in ("pass", "fail"):
                ran.add(name(event))
            elif "Test" in event and event["Action"] == "skip":
                left[name(event)] = True
    never = [test for test in left if test not in ran]
    for test in never:
        print(f"skipped, and never run: {test}")
    sys.exit(bool(never))


def prefixes(path):
    ids = [scenario["id"] for scenario in json.load(open(path)) if not scenario["id"].startswith("ipython/")]
    print("\n".join(sorted({i.split("/")[0] + "/" for i in ids})))
    print(len(ids))


def exceptions(path):
    out = {}
    for line in open(path):
        if line.strip() and not line.startswith("#"):
            vector, what, _ = line.split(None, 2)
            out[vector] = what
    return out


def comparable(vector):
    """As in the checker: it has nothing to compare where upstream is wrong and nobody wrote down what is right."""
    return vector["stance"] != "deviate" or "files_after" in (vector.get("ours") or {})


def editor(vectors, listed, logs):
    want = {v["id"] for v in json.load(open(vectors))["vectors"] if v["variant"] in VARIANTS and comparable(v)}
    listed, wrong = exceptions(listed), []
    ran, failed = set(), set()
    for log in logs:
        text = open(log).read()
        failed |= set(re.findall(r"^FAIL (\S+)", text, re.M))
        ran |= set(re.findall(r"^(?:FAIL|ok  ) (\S+)", text, re.M))
    for vector in sorted(want | failed | set(listed)):
        expected = listed.get(vector, "passes")
        got = "fails" if vector in failed else "passes" if vector in ran else "not-run"
        if got != expected:
            wrong.append(f"{vector}: {got}, expected: {expected}")
    print("\n".join(wrong) or f"as expected; {len(listed)} exceptions stand in .ci/editor-exceptions")
    sys.exit(bool(wrong))


def main():
    match sys.argv[1:]:
        case ["tests", log]:
            tests(log)
        case ["skipped", *logs] if logs:
            skipped(logs)
        case ["prefixes", exchanges]:
            prefixes(exchanges)
        case ["editor", vectors, listed, *logs] if logs:
            editor(vectors, listed, logs)
        case _:
            sys.exit(__doc__)


main()

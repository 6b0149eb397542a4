"""Judge what the tests and the checkers said, for .ci/run.

usage: verdicts.py tests LOG FLAKY PACKAGES GO-TEST...
                                        run the tests into a log, and what failed again: fail unless it only was
                                        flaky, which is appended to FLAKY
       verdicts.py skipped LOG...       fail where a test ran in none of the logs
       verdicts.py prefixes EXCHANGES   print a replay prefix per line, and the number of scenarios
       verdicts.py editor EDITOR EXCEPTIONS LOG...
                                        fail where `editcheck.py --verbose` said anything else than expected
"""
import collections, json, re, subprocess, sys

MOST_FLAKY = 5  # more failures than this have a cause
LAST_LINES = 40
UNJUDGED = ("v1-gemini", "llm-v0")  # variants that the checker does not know


def events(path):
    for line in open(path, encoding="utf-8", errors="replace"):
        if line.startswith("{"):
            yield json.loads(line)


def name(event):
    return " ".join(filter(None, (event.get("Package") or event.get("ImportPath"), event.get("Test"))))


def go_test(log, command):
    """Run `go test -json` into a log; its stderr, where go itself complains, is ours."""
    with open(log, "w") as out:
        return subprocess.run(command, stdout=out, stdin=subprocess.DEVNULL).returncode


def tests(log, flaky, packages, command):
    """A test that fails is run alone, and is flaky if it then passes twice. All else is a failure."""
    status = go_test(log, command + [packages])
    output, count, suspects, hopeless = failures(log)
    print(f"{count['pass']} passed, {count['fail']} failed, {count['skip']} skipped")
    for suspect in suspects + hopeless:
        print(f"\nFAILED: {' '.join(suspect)}\n{output[suspect]}", end="")
    if status and not suspects or hopeless or len(suspects) > MOST_FLAKY:
        sys.exit(f"go test ended with status {status}; nothing is run again")
    for package, *test in suspects:
        only = ["-run", f"^{test[0]}$"] if test else []
        for _ in range(2):
            again = f"{log}-again"
            if go_test(again, command + only + [package]) or not ran(again, package, *test):
                second, _, *failed = failures(again)
                for key in sum(failed, []) or [(package,)]:
                    print(f"\nFAILED again: {' '.join(key)}\n{second[key]}", end="")
                # The end of a log is what everybody sees.
                sys.exit(f"\n{' '.join([package, *test])} failed, and failed again when it ran alone. The end of the first failure:\n"
                         + "".join(output[package, *test].splitlines(True)[-LAST_LINES:]))
        with open(flaky, "a") as file:
            print(f"flaky: {' '.join([package, *test])}\n{output[package, *test]}", file=file)
        print(f"flaky: {' '.join([package, *test])}: it passed twice when it ran alone")


def failures(log):
    """What failed, as (package, test) or (package,), with its output; and which of these need no second try."""
    output, count, whole = collections.defaultdict(str), collections.Counter(), set()
    failed, hopeless = collections.defaultdict(list), []
    for event in events(log):
        action, test = event["Action"], event.get("Test", "")
        package = event.get("Package") or event["ImportPath"].split()[0]
        if action in ("output", "build-output"):
            for key in ((package, test.split("/")[0]), (package,)) if test else ((package,),):
                output[key] += event["Output"]
            if event["Output"] == "FAIL\n" and not test:
                whole.add(package)  # the test program came to its end: nothing in it panicked or hung
        if test and action in ("pass", "fail", "skip"):
            count[action] += 1
            if action == "fail" and "/" not in test:
                failed[package].append((package, test))
        elif action == "fail" and "FailedBuild" in event:
            hopeless.append((package,))
        elif action == "fail" and package not in whole:
            failed[package] = [(package,)]  # the tests after it did not run
        elif action == "fail":
            failed[package] = failed[package] or [(package,)]
    return output, count, [suspect for each in failed.values() for suspect in each], hopeless


def ran(log, package, test=None):
    return any(e["Action"] == "pass" and e.get("Package") == package and e.get("Test") == test for e in events(log))


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
    ids = [scenario["id"] for scenario in json.load(open(path))]
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
    want = {v["id"] for v in json.load(open(vectors))["vectors"] if v["variant"] not in UNJUDGED and comparable(v)}
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
        case ["tests", log, flaky, packages, *command] if command:
            tests(log, flaky, packages, command)
        case ["skipped", *logs] if logs:
            skipped(logs)
        case ["prefixes", exchanges]:
            prefixes(exchanges)
        case ["editor", vectors, listed, *logs] if logs:
            editor(vectors, listed, logs)
        case _:
            sys.exit(__doc__)


main()

#!/usr/bin/env python3
"""Counts the instructions of the guard's benches at another commit and here.

    benches/guard/compare.py [BASE]

Builds both with the same flags into the same target folder, so that nothing but
this repository's own code is built twice, and runs both. Fails where a bench takes
more than 5 % more instructions than at BASE, unless a commit since BASE says why:

    Slower: request::chat: counts its tokens exactly

BASE is by default where this branch left origin/main; on main itself it is 20
commits back by first parents, or where the bench began if that is later, so that
growth in small steps shows too. A bench that
BASE has not, and a clone without BASE, are told and fail nothing. Needs valgrind
(asked of apt where it is missing).
"""

import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LIMIT = 5.0
COMMITS_BACK = 20
BENCH = "benches/guard/cases.rs"
COUNTED = "guard::cases::counted"


def main(arguments):
    root = Path(git(Path(__file__).parent, "rev-parse", "--show-toplevel"))
    target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target")).resolve()
    base, why = base_of(root, arguments)
    if base is None:
        print(f"not compared: {why}")
        return 0
    print(f"compared with {base[:12]}: {why}", flush=True)
    tree = checked_out(root, target, base)
    if not (tree / BENCH).exists():
        print(f"not compared: {base[:12]} has no {BENCH}")
        return 0
    tools(root)
    # Callgrind counts the one while the compiler builds the other.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        before = counts(pool, tree, built(tree, target, "base"))
        after = counts(pool, root, built(root, target, "head"))
        before, after = before(), after()
    lines, is_slower = judged(before, after, reasons(root, base))
    print("\n".join(lines))
    return 1 if is_slower else 0


def base_of(root, arguments):
    """The commit to compare with, and why that one; None where there is none."""
    if arguments:
        return git(root, "rev-parse", "--verify", f"{arguments[0]}^{{commit}}"), "as asked"
    head = git(root, "rev-parse", "HEAD")
    left = git_or_none(root, "merge-base", "HEAD", "origin/main")
    if left and left != head:
        return left, "where this branch left origin/main"
    back = git_or_none(root, "rev-parse", "--verify", f"HEAD~{COMMITS_BACK}^{{commit}}")
    first = git(root, "log", "-1", "--no-renames", "--diff-filter=A", "--format=%H", "--", BENCH)
    if back and first in git(root, "rev-list", f"{back}..HEAD").split():
        return first, f"the bench began less than {COMMITS_BACK} commits ago"
    if back:
        return back, f"{COMMITS_BACK} commits back"
    if git(root, "rev-parse", "--is-shallow-repository") == "true":
        return None, f"the clone is shallow and ends within {COMMITS_BACK} commits"
    return None, f"there are fewer than {COMMITS_BACK} commits"


def checked_out(root, target, base):
    """A worktree of `base`, always at the same place: its build can be used again."""
    tree = target / "guard" / "base"
    if tree.exists():
        git(root, "-C", tree, "checkout", "--quiet", "--force", "--detach", base)
    else:
        git(root, "worktree", "prune")
        git(root, "worktree", "add", "--quiet", "--force", "--detach", tree, base)
    return tree


def tools(root):
    if shutil.which("valgrind") is None:
        run(root, "apt-get", "update", "-qq")
        run(root, "apt-get", "install", "-y", "-qq", "--no-install-recommends", "valgrind")


def counts(pool, tree, bench):
    """Begins to count each case of `bench`; the answer waits for the instructions by case."""
    cases = subprocess.run([bench], check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    begun = {case: pool.submit(instructions, tree, bench, case) for case in cases}
    return lambda: {case: count.result() for case, count in begun.items()}


def built(tree, target, name):
    """The executable of the bench of `tree`."""
    # Nothing that ships checks its own books, and what a commit says of the test profile
    # is not to show. Cargo takes both trees for one package and would use the build of one
    # for the other, were their profiles not different: what is noted of lines changes no
    # instruction.
    profile = {"debug-assertions": "false", "opt-level": "1"}
    if name == "base":
        profile["debug"] = '"line-directives-only"'
    settings = [f"--config=profile.test.package.tidegate.{key}={value}" for key, value in profile.items()]
    command = ["cargo", "bench", "--quiet", "--locked", "--no-run", "--message-format=json", "--profile", "test",
               *settings, "--bench", "guard"]
    environment = os.environ | {"CARGO_TARGET_DIR": str(target)}
    ran = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True)
    if ran.returncode != 0:
        sys.exit(f"the bench of {tree} does not build")
    made = [json.loads(line).get("executable") for line in ran.stdout.splitlines()]
    # The base's file has the name of no other: it is not written over by the next build.
    return next(path for path in made if path and Path(path).name.startswith("guard-"))


def instructions(tree, bench, case):
    """What callgrind counts in the counted part of `case`."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", f"--toggle-collect={COUNTED}*",
               str(bench), case]
    ran = subprocess.run(command, cwd=tree, stderr=subprocess.PIPE, text=True)
    count = collected(ran.stderr)
    if ran.returncode != 0 or not count:
        sys.exit(f"{case} of {tree} does not run:\n{ran.stderr}")
    return count


def collected(talk):
    """The instructions that callgrind says it counted; 0 where it does not say.

    >>> collected("==7== Events    : Ir\\n==7== Collected : 12913355\\n==7==")
    12913355
    >>> collected("panicked")
    0
    """
    said = re.search(r"Collected : (\d+)", talk)
    return int(said[1]) if said else 0


def reasons(root, base):
    """What commits since `base` say of benches that are slower, by bench.

    >>> told("Slower: request::chat: exact\\nSlower: without a reason\\n")
    {'request::chat': 'exact'}
    """
    trailers = "--format=%(trailers:key=Slower)"
    return told(git(root, "log", trailers, f"{base}..HEAD"))


def told(text):
    return dict(re.findall(r"^Slower: (\S+): *(\S.*)$", text, re.MULTILINE))


def judged(before, after, reasons):
    """A line for each bench, and whether one grew past the limit without a reason.

    >>> judged({"a": 1000}, {"a": 1050, "b": 7}, {})
    (['  a 1,000 -> 1,050 (+5.0 %)', '  b 7, which the base has not'], False)
    >>> judged({"a": 1000}, {"a": 1051}, {})
    (['! a 1,000 -> 1,051 (+5.1 %): more than 5 %, and no commit says why'], True)
    >>> judged({"a": 1000}, {"a": 2000}, {"a": "reads twice"})
    (['  a 1,000 -> 2,000 (+100.0 %): reads twice'], False)
    """
    lines, is_slower = [], False
    for bench, now in after.items():
        if bench not in before:
            lines.append(f"  {bench} {now:,}, which the base has not")
            continue
        was = before[bench]
        growth = 100 * (now - was) / was
        line = f"{bench} {was:,} -> {now:,} ({growth:+.1f} %)"
        if growth <= LIMIT:
            lines.append(f"  {line}")
        elif bench in reasons:
            lines.append(f"  {line}: {reasons[bench]}")
        else:
            is_slower = True
            lines.append(f"! {line}: more than {LIMIT:.0f} %, and no commit says why")
    return lines, is_slower


def run(root, *command):
    subprocess.run([str(part) for part in command], cwd=root, check=True)


def git(root, *arguments):
    command = ["git", "-C", str(root), *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def git_or_none(root, *arguments):
    command = ["git", "-C", str(root), *map(str, arguments)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return ran.stdout.strip() if ran.returncode == 0 else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

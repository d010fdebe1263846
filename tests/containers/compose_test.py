#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""docker/compose.yaml, docker/Dockerfile and scripts/containers fit together: what one names is in the
other. Builds nothing, needs no Docker."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
COMPOSE = ROOT / "docker/compose.yaml"
DOCKERFILE = ROOT / "docker/Dockerfile"
# Of the specification of Compose, what is used here.
SERVICE_KEYS = {"entrypoint", "image", "build", "command", "depends_on", "shm_size", "user", "volumes"}
BUILD_KEYS = {"context", "dockerfile", "target", "args"}

wrong = []
checked = 0


def check(condition, text):
    global checked
    checked += 1
    if not condition:
        wrong.append(text)


def substituted(value):
    """With the default of each variable, as Compose does; a variable without a default is an error."""
    if isinstance(value, dict):
        return {key: substituted(each) for key, each in value.items()}
    if isinstance(value, list):
        return [substituted(each) for each in value]
    if not isinstance(value, str):
        return value
    value = re.sub(r"\$\{[A-Z]+:-([^}]*)\}", r"\1", value)
    check("$" not in value, f"compose.yaml: a variable without a default: {value}")
    return value


def stages(text):
    """Of the Dockerfile: name -> (what it is from, its instructions as (word, rest))."""
    found, instructions = {}, []
    for line in re.sub(r"\\\n", " ", re.sub(r"(?m)^#.*\n", "", text)).splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            base, name = re.fullmatch(r"(\S+) AS (\S+)", rest).groups()
            instructions = []
            found[name] = base, instructions
        elif word:
            instructions.append((word, rest))
    return found


def inherited(found, name, word):
    """The last such instruction of a stage or of what it is from."""
    while name in found:
        base, instructions = found[name]
        rests = [rest for other, rest in instructions if other == word]
        if rests:
            return rests[-1]
        name = base
    return None


def check_dockerfile(text, found):
    arguments = re.findall(r"(?m)^ARG (\w+)", text)
    for name, (base, instructions) in found.items():
        check(base in found or base == "${BASE}", f"Dockerfile: {name} is from {base}")
        for word, rest in instructions:
            sources = []
            for other in re.findall(r"(?:--from=|from=)([\w-]+)", rest):
                check(other in found, f"Dockerfile: {name} takes from {other}, which is no stage")
            if word == "COPY" and "--from" not in rest:
                sources = rest.split()[:-1]
            for source in sources:
                check(source == "." or any(ROOT.glob(source)), f"Dockerfile: there is no {source}")
        if name.startswith("nvcache"):
            user = inherited(found, name, "USER")
            check(user == "nvcache" or name == "nvcache-bench", f"Dockerfile: {name} runs as {user}")
    check(arguments == ["BASE"], f"Dockerfile: arguments {arguments}")
    return arguments


def volume(text):
    """host:inside; the host's side may have no colon."""
    parts = text.split(":")
    check(len(parts) == 2 and parts[1].startswith("/"), f"compose.yaml: the volume {text}")
    return parts[-1]


def check_service(name, service, services, found, arguments):
    check(set(service) <= SERVICE_KEYS, f"{name}: unknown: {set(service) - SERVICE_KEYS}")
    build = service["build"]
    check(set(build) == BUILD_KEYS, f"{name}: build: {set(build) ^ BUILD_KEYS}")
    check((COMPOSE.parent / build["context"]).resolve() == ROOT, f"{name}: context {build['context']}")
    check(ROOT / build["dockerfile"] == DOCKERFILE, f"{name}: dockerfile {build['dockerfile']}")
    check(build["target"] in found, f"{name}: no target {build['target']} in the Dockerfile")
    if build["target"] not in found:
        return
    check(service["image"] == build["target"], f"{name}: image {service['image']}")
    check(set(build["args"]) == set(arguments), f"{name}: args {build['args']}")
    check(re.fullmatch(r"\d+[kmg]b", service["shm_size"]), f"{name}: shm_size {service['shm_size']}")
    check(re.fullmatch(r"\d+:\d+", service["user"]), f"{name}: user {service['user']}")
    inside = [volume(each) for each in service["volumes"]]
    entry = service.get("entrypoint") or yaml.safe_load(inherited(found, build["target"], "ENTRYPOINT"))
    command = entry + service["command"]
    for word in (each for each in command[1:] if each.startswith("/")):
        check(any(word == each or word.startswith(each + "/") for each in inside),
              f"{name}: {word} is in none of its volumes")
    for each in inside:
        check(any(word.startswith(each) for word in command), f"{name}: nothing uses {each}")
    # That bench/run understands this command line; the folders are not the container's.
    line = ["/dev/null" if word.startswith("/") else word for word in command[1:]]
    done = subprocess.run(["/usr/bin/python3", ROOT / "bench/run", *line, "--list"], text=True,
                          check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    check(done.returncode == 0, f"{name}: bench/run {' '.join(line)}: {done.stdout}")
    for other in service.get("depends_on", {}):
        check(other in services, f"{name}: depends on {other}, which is no service")


def one_after_the_other(services):
    """That no two of them can run at once: each waits for the one before."""
    waits = {name: list(service.get("depends_on", {})) for name, service in services.items()}
    order = []
    while len(order) < len(services):
        ready = [name for name in services if name not in order and set(waits[name]) <= set(order)]
        if len(ready) != 1:
            return False
        order += ready
    return True


def check_bench(text):
    """What the Dockerfile copies of the sources is all that bench/run imports."""
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] == "!"}
    with tempfile.TemporaryDirectory() as image:
        for sources, place in re.findall(r"^COPY ((?:bench|tests)\S*) /opt/nvcache/(\S+)$", text, re.M):
            for source in ROOT.glob(sources):
                travels = sources == "bench" or str(source.parent.relative_to(ROOT)) in kept
                check(travels, f".dockerignore: leaves out {source.parent.relative_to(ROOT)}")
                target = pathlib.Path(image, place)
                if source.is_dir():
                    shutil.copytree(source, target)
                else:
                    target.mkdir(parents=True, exist_ok=True)
                    shutil.copy(source, target)
        done = subprocess.run(["/usr/bin/python3", f"{image}/bench/run", "--list"], check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={"PATH": os.environ["PATH"]})
        check(done.returncode == 0, f"docker/Dockerfile: bench/run lacks what it imports: {done.stdout[-200:]}")


def main():
    text = DOCKERFILE.read_text(encoding="utf-8")
    found = stages(text)
    arguments = check_dockerfile(text, found)
    check_bench(text)
    services = substituted(yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"])
    check(services, "compose.yaml: no services")
    for name, service in services.items():
        check_service(name, service, services, found, arguments)
    check(one_after_the_other(services), "compose.yaml: two benchmarks may run at once")
    suites = {name.removeprefix("nvcache-") for name in found if "bench/run" in str(inherited(found, name, "ENTRYPOINT"))}
    check(set(services) == suites | {"report"}, f"compose.yaml: {set(services)}, images of {suites}")
    check(list(services)[-1] == "report", "compose.yaml: the report is not last")
    reported = {pathlib.Path(word).name for word in services["report"]["command"][1::2]} - {"results"}
    check(reported == suites, f"compose.yaml: a report of {reported}, images of {suites}")

    usage = subprocess.run([ROOT / "scripts/containers", "--help"], check=True, text=True,
                           stdout=subprocess.PIPE).stdout
    names = set(re.search(r"^NAME: (.*)$", usage, re.M).group(1).split(", "))
    images = {name for name in found if name.startswith("nvcache") and name != "nvcache-bench"}
    check(names == images, f"scripts/containers --help names {names}, the Dockerfile {images}")
    readme = (ROOT / "docker/README.md").read_text(encoding="utf-8")
    for name in images:
        check(f"`{name}`" in readme, f"docker/README.md: nothing on {name}")
    print("\n".join(wrong) if wrong else f"{len(images)} images, {len(services)} services: {checked} checks")
    sys.exit(1 if wrong else 0)


main()

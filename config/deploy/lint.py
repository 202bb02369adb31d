"""Checks of config/deploy; ./lint brings the tools. Ends with 1 where one fails."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import kubernetes_validate
import yaml
from helm_python.chart import Chart, lint
from helm_python.errors import HelmError

HERE = Path(__file__).parent
TOOLS = Path(sys.executable).parent
BINARY = Path(sys.argv[1]).resolve()
CHART = HERE / "helm" / "tidegate"
KUBERNETES = ["1.30", "1.34"]
TOKEN = "0123456789abcdef0123456789abcdef\n"
TENANTS = '[[tenants]]\nname = "chat"\nkey_sha256 = ["' + "0" * 64 + '"]\n'

# Values that turn on what is off by default, and what must not be taken.
FULL = {
    "image": {"digest": "sha256:" + "0" * 64},
    "tenants": {"text": TENANTS},
    "adminToken": {"existingSecret": "mine"},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "podDisruptionBudget": {"maxUnavailable": "25%"},
    "networkPolicy": {
        "clients": [{"namespaceSelector": {"matchLabels": {"team": "chat"}}}],
        "operators": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        "egress": [{"to": [{"podSelector": {"matchLabels": {"app": "vllm"}}}]}],
    },
    "podAnnotations": {"a": "b"},
    "podLabels": {"c": "d"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "x", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "high",
    "imagePullSecrets": [{"name": "pull"}],
    "extraEnv": [{"name": "VLLM_API_KEY", "value": "x"}],
    "extraVolumes": [{"name": "models", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "models", "mountPath": "/models"}],
}
WRONG = [
    {"replicas": 3},
    {"replicaCount": -1},
    {"image": {"pullPolicy": "Sometimes"}},
    {"backends": {"port": 0}},
    {"podDisruptionBudget": {"maxUnavailable": "some"}},
]

failures = []


def told(what, problem=None):
    """One line for each check."""
    print(f"{'failed' if problem else 'ok':7}{what}" + (f": {problem}" if problem else ""))
    if problem:
        failures.append(what)


def run(what, *command):
    """A tool that ends with 0 where all is well."""
    done = subprocess.run(command, capture_output=True, text=True)
    output = (done.stdout + done.stderr).strip()
    told(what, output or f"exit code {done.returncode}" if done.returncode else None)
    return output


def checked(name, config, secrets):
    """Whether `tidegate check` takes a configuration whose secrets are elsewhere."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in secrets.items():
            file = Path(folder) / Path(path).name
            file.write_text(text)
            file.chmod(0o600)
            config = config.replace(path, str(file))
        file = Path(folder) / "tidegate.toml"
        file.write_text(config)
        done = subprocess.run([BINARY, "check", file], capture_output=True, text=True)
        problem = (done.stdout + done.stderr).strip()
        told(f"tidegate check of {name}", problem if done.returncode else None)


def chart():
    """Helm's own engine renders; the API's schemas judge what comes out."""
    report = lint(str(CHART), strict=True, kube_version="v1.30.0")
    bad = [str(m) for m in report["messages"] if m["severity"] >= 2] + report["errors"]
    told("helm lint --strict", "; ".join(bad))
    with Chart.load(str(CHART)) as loaded:
        for name, values in {"defaults": {}, "everything": FULL}.items():
            rendered(name, loaded.render(values=values, name="demo", namespace="llm"))
        for values in WRONG:
            try:
                loaded.validate_schema(values)
                told(f"values {values} are refused", "they are not")
            except HelmError:
                told(f"values {values} are refused")


def rendered(name, manifests):
    """Each object against the schema of its kind, and the configuration in it."""
    kinds = []
    for path, text in manifests.items():
        if not path.endswith(".yaml"):
            continue
        for thing in filter(None, yaml.safe_load_all(text)):
            kinds.append(thing["kind"])
            if thing["kind"] == "ConfigMap":
                secrets = {
                    "/etc/tidegate-secrets/admin.token": TOKEN,
                    "/etc/tidegate-secrets/tenants.toml": TENANTS,
                }
                config = thing["data"]["tidegate.toml"]
                checked(f"the chart's configuration, {name}", config, secrets)
            if thing["kind"] != "ServiceMonitor":
                valid(f"{name}: {Path(path).name} {thing['kind']}", thing)
    print(f"       {name}: {', '.join(sorted(kinds))}")


def valid(what, thing):
    """Against the API of each version, keys that it does not know included."""
    for version in KUBERNETES:
        try:
            kubernetes_validate.validate(thing, version, strict=True)
            told(f"{what}, Kubernetes {version}")
        except kubernetes_validate.ValidationError as error:
            told(f"{what}, Kubernetes {version}", str(error).splitlines()[0])


def units():
    """The units as they would be installed, with this binary in its place."""
    with tempfile.TemporaryDirectory() as folder:
        for unit in sorted((HERE / "systemd").iterdir()):
            text = unit.read_text().replace("/usr/bin/tidegate", str(BINARY))
            (Path(folder) / unit.name).write_text(text)
        names = sorted(str(path) for path in Path(folder).iterdir())
        # It ends with 0 where a key is unknown, and says so.
        said = run("systemd-analyze verify", "systemd-analyze", "verify", "--man=no", *names)
        told("systemd-analyze verify says nothing", said)
        service = str(Path(folder) / "tidegate.service")
        output = run(
            "systemd-analyze security", "systemd-analyze", "security", "--offline=yes",
            "--threshold=20", "--no-pager", service,
        )
        found = re.search(r"exposure level.*", output)
        print(f"       {found.group(0) if found else output}")


def main():
    """All checks."""
    yamls = [HERE / "compose" / "compose.yaml", CHART / "values.yaml", CHART / "Chart.yaml"]
    run("yamllint", TOOLS / "yamllint", "--strict", "-c", HERE / ".yamllint", *yamls)
    run("hadolint Dockerfile", TOOLS / "hadolint", HERE / "Dockerfile")
    schema = ["--builtin-schema", "vendor.compose-spec"]
    run("compose.yaml, Compose specification", TOOLS / "check-jsonschema", *schema, yamls[0])
    metaschema = [TOOLS / "check-jsonschema", "--check-metaschema"]
    run("values.schema.json is a schema", *metaschema, CHART / "values.schema.json")
    compose = (HERE / "compose" / "tidegate.toml").read_text()
    checked("compose/tidegate.toml", compose, {"/run/secrets/admin.token": TOKEN})
    chart()
    units()
    print(f"{len(failures)} failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    os.environ["SYSTEMD_COLORS"] = "0"
    main()

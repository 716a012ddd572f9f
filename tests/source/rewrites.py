"""Rewrites that keep a program's meaning: other names, other imports, code moved to helpers, classes and files."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable

Rewrite = Callable[[str], dict[str, str]]


class _Rename(ast.NodeTransformer):
    """Gives every name that the file binds itself another one; keywords follow for the file's own functions."""

    def __init__(self, tree: ast.Module) -> None:
        self.functions = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
        imported = {(a.asname or a.name).split(".")[0] for n in ast.walk(tree) if isinstance(n, (ast.Import, ast.ImportFrom)) for a in n.names}
        bound = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        bound |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
        bound |= {n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
        self.names = {n: f"zz_{i}" for i, n in enumerate(sorted(bound - imported - set(dir(builtins)) - {"self"}))}

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self.names.get(node.arg, node.arg)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.name = self.names.get(node.name, node.name)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self.generic_visit(node)
        node.name = self.names.get(node.name, node.name)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        own = isinstance(node.func, ast.Name) and node.func.id in self.functions
        self.generic_visit(node)
        for keyword in node.keywords:
            if own and keyword.arg:
                keyword.arg = self.names.get(keyword.arg, keyword.arg)
        return node


def renamed(text: str) -> dict[str, str]:
    tree = ast.parse(text)
    return {"train.py": ast.unparse(_Rename(tree).visit(tree))}


class _Aliases(ast.NodeTransformer):
    """`import torch` → `import torch as m0`; `from a.b import C as D` → `import a.b as m1` and `m1.C`."""

    def __init__(self) -> None:
        self.values: dict[str, ast.expr] = {}
        self.count = 0

    def _fresh(self) -> str:
        self.count += 1
        return f"mod_{self.count}"

    def visit_Import(self, node: ast.Import) -> ast.AST:
        for alias in node.names:
            if alias.name.count(".") and alias.asname is None:
                continue
            name = self._fresh()
            self.values[alias.asname or alias.name] = ast.Name(name, ast.Load())
            alias.asname = name
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        name = self._fresh()
        for alias in node.names:
            self.values[alias.asname or alias.name] = ast.Attribute(ast.Name(name, ast.Load()), alias.name, ast.Load())
        return ast.Import([ast.alias(node.module or "", name)])

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self.values.get(node.id, node) if isinstance(node.ctx, ast.Load) else node


def aliased(text: str) -> dict[str, str]:
    return {"train.py": ast.unparse(ast.fix_missing_locations(_Aliases().visit(ast.parse(text))))}


def in_another_file(text: str) -> dict[str, str]:
    """All functions and classes but main go to helpers.py, with the imports."""
    tree = ast.parse(text)
    moved = [n for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef)) and n.name != "main"]
    imports = [n for n in tree.body if isinstance(n, (ast.Import, ast.ImportFrom))]
    if not moved:
        return {"train.py": text}
    rest = [n for n in tree.body if n not in moved]
    last = max(i for i, n in enumerate(rest) if isinstance(n, (ast.Import, ast.ImportFrom)))
    rest.insert(last + 1, ast.ImportFrom("helpers", [ast.alias(n.name) for n in moved], 0))
    files = {"helpers.py": ast.Module([*imports, *moved], []), "train.py": ast.Module(rest, [])}
    return {name: ast.unparse(ast.fix_missing_locations(module)) for name, module in files.items()}


def main_in_another_file(text: str) -> dict[str, str]:
    """Everything goes to app.py; train.py only calls its main."""
    return {"app.py": text, "train.py": "import app\nif __name__ == '__main__':\n    app.main()\n"}


class _ToSelf(ast.NodeTransformer):
    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Attribute(ast.Name("self", ast.Load()), node.id, node.ctx) if node.id in self.names else node


def in_a_class(text: str) -> dict[str, str]:
    """main becomes a method, its variables attributes."""
    tree = ast.parse(text)
    main = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "main")
    inner = {n.id for c in ast.walk(main) if isinstance(c, (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)) for g in c.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
    inner |= {a.arg for c in ast.walk(main) if isinstance(c, ast.Lambda) for a in c.args.args}
    names = {n.id for n in ast.walk(main) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} - inner
    run = ast.FunctionDef("run", ast.arguments([], [ast.arg("self")], None, [], [], None, []), [_ToSelf(names).visit(s) for s in main.body], [], None)
    app = ast.ClassDef("App", [], [], [run], [])
    call = ast.parse("def main():\n    App().run()\n").body
    body: list[ast.stmt] = []
    for n in tree.body:
        body += [app, *call] if n is main else [n]
    return {"train.py": ast.unparse(ast.fix_missing_locations(ast.Module(body, [])))}


class _Extract(ast.NodeTransformer):
    """Each simple statement of main becomes a call of a helper that does it."""

    def __init__(self, local: set[str], assignments: bool) -> None:
        self.local, self.assignments, self.made = local, assignments, list[ast.stmt]()

    def _helper(self, expression: ast.expr, returns: bool) -> ast.expr:
        names = sorted({n.id for n in ast.walk(expression) if isinstance(n, ast.Name) and n.id in self.local})
        name = f"part_{len(self.made)}"
        args = ast.arguments([], [ast.arg(n) for n in names], None, [], [], None, [])
        self.made.append(ast.FunctionDef(name, args, [ast.Return(expression) if returns else ast.Expr(expression)], [], None))
        return ast.Call(ast.Name(name, ast.Load()), [ast.Name(n, ast.Load()) for n in names], [])

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return ast.Expr(self._helper(node.value, False))

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if self.assignments and not isinstance(node.value, ast.Constant) and not any(isinstance(n, ast.Lambda) for n in ast.walk(node.value)):
            node.value = self._helper(node.value, True)
        return node


def _extracted(text: str, assignments: bool) -> dict[str, str]:
    tree = ast.parse(text)
    main = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "main")
    local = {n.id for n in ast.walk(main) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    extract = _Extract(local, assignments)
    extract.generic_visit(main)
    body: list[ast.stmt] = []
    for n in tree.body:
        body += [*extract.made, n] if n is main else [n]
    return {"train.py": ast.unparse(ast.fix_missing_locations(ast.Module(body, [])))}


def calls_in_helpers(text: str) -> dict[str, str]:
    return _extracted(text, assignments=False)


def all_in_helpers(text: str) -> dict[str, str]:
    return _extracted(text, assignments=True)


def two_of(first: Rewrite, second: Rewrite) -> Rewrite:
    """One rewrite after the other; the second sees the main file."""

    def both(text: str) -> dict[str, str]:
        files = first(text)
        return files | second(files["train.py"])

    both.__name__ = f"{first.__name__}-{second.__name__}"
    return both


REWRITES: list[Rewrite] = [renamed, aliased, in_another_file, main_in_another_file, in_a_class, calls_in_helpers, all_in_helpers,
                           two_of(renamed, aliased), two_of(calls_in_helpers, renamed), two_of(all_in_helpers, in_another_file), two_of(in_a_class, aliased)]

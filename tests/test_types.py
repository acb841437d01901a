"""The stubs of the extension say what it has, and every public name of pchan is annotated and described.

`make lint` has mypy check the package and the examples against them, with strict = true.
"""

import ast
import inspect
from pathlib import Path

import pytest

import pchan

PACKAGE = Path(pchan.__file__).parent
STUB = ast.parse((PACKAGE / "_core.pyi").read_text())
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
pytestmark = pytest.mark.launcher  # once is enough


def is_property(function):
    return any(isinstance(d, ast.Name) and d.id == "property" for d in function.decorator_list)


def stub_parameters(function):
    """[(name, default)] without self or cls; a default as text, None for none."""
    arguments = function.args
    assert not (arguments.vararg or arguments.kwarg or arguments.kwonlyargs), function.name
    names = [a.arg for a in arguments.posonlyargs + arguments.args]
    defaults = [None] * (len(names) - len(arguments.defaults)) + [ast.unparse(d) for d in arguments.defaults]
    return [(n, d) for n, d in zip(names, defaults, strict=True) if n not in ("self", "cls")]


def real_parameters(function):
    """The same from the first line of the docstring, which the extension's methods state their signature in."""
    signature = inspect.signature(function)
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    assert all(p.kind in kinds for p in signature.parameters.values()), function
    return [
        (p.name, None if p.default is p.empty else repr(p.default))
        for p in signature.parameters.values()
        if p.name not in ("self", "cls")
    ]


@pytest.mark.parametrize("name", CLASSES)
def test_bound_methods_keep_their_first_parameter(name):
    """help() and inspect drop the first one, which must therefore be self."""
    for method, function in vars(getattr(pchan._core, name)).items():
        if inspect.ismethoddescriptor(function) and not method.startswith("__"):
            first = (function.__text_signature__ or "").strip("()").partition(",")[0]
            assert first == ("$type" if method == "_estimate" else "$self"), method


def test_the_module_has_what_the_stub_names():
    functions = {n.name: n for n in STUB.body if isinstance(n, ast.FunctionDef)}
    values = {n.target.id: n.annotation.id for n in STUB.body if isinstance(n, ast.AnnAssign)}
    real = {n: v for n, v in vars(pchan._core).items() if not n.startswith("__")}
    assert set(real) == set(CLASSES) | set(functions) | set(values)
    for name, function in functions.items():
        assert stub_parameters(function) == real_parameters(real[name]), name
    for name, annotation in values.items():
        assert type(real[name]).__name__ == annotation, name
    assert (PACKAGE / "py.typed").exists()


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_has_what_the_stub_names(name):
    cls = getattr(pchan._core, name)
    members = {n.name: n for n in CLASSES[name].body if isinstance(n, ast.FunctionDef)}
    special = {n for n in members if n.startswith("__")}
    assert special <= {"__new__", "__len__", "__buffer__"}  # the last one shows from Python 3.12 on
    assert ("__len__" in special) == hasattr(cls, "__len__")
    assert members.keys() - special == {n for n in vars(cls) if not n.startswith("__")}
    if "__new__" in special:
        assert stub_parameters(members["__new__"]) == real_parameters(cls)
    for member in members.keys() - special:
        real, stub = inspect.getattr_static(cls, member), members[member]
        assert real.__doc__, member
        assert inspect.isgetsetdescriptor(real) == is_property(stub), member
        if not is_property(stub):
            assert stub_parameters(stub) == real_parameters(getattr(cls, member)), member
        assert stub.returns is not None, member


def public_functions():
    for name in pchan.__all__:
        value = getattr(pchan, name)
        if inspect.isfunction(value):
            yield name, value
        elif inspect.isclass(value):
            for member, attribute in vars(value).items():
                function = attribute.fget if isinstance(attribute, property) else attribute
                if inspect.isfunction(function) and not member.startswith("_"):
                    yield f"{name}.{member}", function


def test_every_public_function_is_annotated_and_described():
    functions = dict(public_functions())
    assert len(functions) > 15
    for name, function in functions.items():
        if function.__module__.startswith("pchan") and function.__qualname__ == name:
            assert function.__doc__, name
            parameters = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
            assert all(p.annotation is not p.empty for p in parameters), name
            assert inspect.signature(function).return_annotation is not inspect.Signature.empty, name

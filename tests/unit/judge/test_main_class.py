"""Which class a compiled program begins with, and what its source file must be called."""

import struct
import zipfile
from pathlib import Path

import pytest

from fencepost_judge._main_class import class_in_folder, class_in_jar, named_for_compiler

STATIC, INSTANCE = 0x0009, 0x0001
ARRAY, NOTHING = "([Ljava/lang/String;)V", "()V"


def compiled(name: str, *methods: tuple[int, str, str], major: int = 61) -> bytes:
    """A class file with a long and a string among its constants: they take other room than the rest."""
    texts = [name, "java/lang/Object", *(text for _, *pair in methods for text in pair)]
    pool = [b"\x01" + struct.pack(">H", len(text)) + text.encode() for text in texts]
    classes = [b"\x07" + struct.pack(">H", 1), b"\x07" + struct.pack(">H", 2)]
    odd = [b"\x05" + bytes(8)]
    count = len(pool) + len(classes) + 2 * len(odd) + 1
    head = struct.pack(">IHHH", 0xCAFEBABE, 0, major, count) + b"".join([*pool, *classes, *odd])
    own = struct.pack(">HHHHH", 0x21, len(pool) + 1, len(pool) + 2, 0, 0)
    body = b"".join(
        struct.pack(">HHHH", access, 3 + 2 * place, 4 + 2 * place, 1) + struct.pack(">HI", 1, 3) + b"abc"
        for place, (access, _, _) in enumerate(methods)
    )
    return head + own + struct.pack(">H", len(methods)) + body + struct.pack(">H", 0)


MAIN = (STATIC, "main", ARRAY)
OTHER = (STATIC, "helper", ARRAY)


def written(folder: Path, **files: bytes) -> Path:
    for name, content in files.items():
        path = folder / f"{name.replace('__', '/')}.class"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


@pytest.mark.parametrize(
    ("files", "wanted", "found"),
    [
        ({"Solution": compiled("Solution", OTHER, MAIN)}, "Main", "Solution"),
        ({"A": compiled("A", OTHER), "Z": compiled("Z", MAIN)}, "A", "Z"),
        ({"A": compiled("A", MAIN), "Z": compiled("Z", MAIN)}, "Z", "Z"),
        ({"A": compiled("A", MAIN), "Main": compiled("Main", MAIN)}, "B", "Main"),
        ({"x__y__Main": compiled("x/y/Main", MAIN)}, "Main", "x.y.Main"),
        ({"A": compiled("A", (INSTANCE, "main", ARRAY))}, "A", None),
        ({"A": compiled("A", (INSTANCE, "main", NOTHING), major=69)}, "A", "A"),
        ({"A": compiled("A", (STATIC, "main", "(I)V"))}, "A", None),
        ({"A": b"", "B": b"\xca\xfe\xba\xbe\0\0\0=\xff\xff", "C": compiled("C", MAIN)}, "A", "C"),
        ({"A": compiled("A", MAIN)[:60]}, "A", None),
        ({}, "A", None),
    ],
)
def test_the_class_with_a_main_method_is_found(
    tmp_path: Path, files: dict[str, bytes], wanted: str, found: str | None
) -> None:
    assert class_in_folder(written(tmp_path, **files), wanted) == found


def test_a_jar_says_its_class_or_is_searched_without_its_runtime(tmp_path: Path) -> None:
    said, silent, broken = tmp_path / "a.jar", tmp_path / "b.jar", tmp_path / "c.jar"
    for jar, manifest in ((said, "Manifest-Version: 1.0\r\nMain-Class: MainKt\r\n"), (silent, "")):
        with zipfile.ZipFile(jar, "w") as made:
            made.writestr("META-INF/MANIFEST.MF", manifest)
            made.writestr("kotlin/Runtime.class", compiled("kotlin/Runtime", MAIN))
            made.writestr("AppKt.class", compiled("AppKt", MAIN))
            made.writestr("OtherKt.class", compiled("OtherKt", OTHER))
    broken.write_bytes(b"PK no zip")

    assert [class_in_jar(one, "app") for one in (said, silent, broken)] == ["MainKt", "AppKt", None]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("public class Foo { }", "Foo.java"),
        ("package a.b;\nimport java.util.*;\npublic final class Foo{}", "Foo.java"),
        ("class A { public class Inner {} }\n", "Main.java"),
        ("// public class Comment {}\n/* public class Other {} */ class A {}", "Main.java"),
        ('class A { String s = "{ public class Text"; } public record Bar(int a) {}', "Bar.java"),
        ("class A { char c = '{'; char d = '\\''; }\npublic\ninterface I {}", "I.java"),
        ("class A {}", "Main.java"),
        ("", "Main.java"),
    ],
)
def test_a_java_file_is_called_as_its_public_class(source: str, name: str) -> None:
    assert list(named_for_compiler({"Main.java": source.encode()})) == [name]


def test_no_file_takes_the_name_of_another() -> None:
    sources = {"Main.java": b"public class Foo {}", "Foo.java": b"class Foo {}", "notes.txt": b""}

    assert list(named_for_compiler(sources)) == ["Main.java", "Foo.java", "notes.txt"]

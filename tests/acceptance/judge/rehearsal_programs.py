"""Programs for a rehearsal, in languages that need no package beyond this machine's compilers. Each reads two
numbers and prints their sum and the problem's number; the others fail in a way that does not depend on it."""

RIGHT = {
    "bash": "read a b; echo $((a + b + NUMBER))",
    "c": '#include <stdio.h>\nint main(void) { long a, b; if (scanf("%ld %ld", &a, &b) != 2) return 1;'
    ' printf("%ld\\n", a + b + NUMBER); }',
    "cpp": "#include <iostream>\nint main() { long a, b; std::cin >> a >> b;"
    " std::cout << a + b + NUMBER << std::endl; }",
    "go": 'package main\nimport "fmt"\nfunc main() { var a, b int; fmt.Scan(&a, &b);'
    " fmt.Println(a + b + NUMBER) }",
    "java": "import java.util.*;\npublic class Sum { public static void main(String[] x) {"
    " Scanner in = new Scanner(System.in); System.out.println(in.nextLong() + in.nextLong() + NUMBER); } }",
    "javascript": "const [a, b] = require('fs').readFileSync(0, 'utf8').trim().split(/\\s+/).map(Number);\n"
    "console.log(a + b + NUMBER);",
    "perl": 'my ($a, $b) = split " ", <STDIN>; print $a + $b + NUMBER, "\\n";',
    "python": "print(sum(map(int, input().split())) + NUMBER)",
    "rust": "use std::io;\nfn main() { let mut s = String::new(); io::stdin().read_line(&mut s).unwrap();"
    " let t: i64 = s.split_whitespace().map(|w| w.parse::<i64>().unwrap()).sum();"
    ' println!("{}", t + NUMBER); }',
    "tcl": "lassign [gets stdin] a b\nputs [expr {$a + $b + NUMBER}]",
}
FAILS = {"RE": ("python", "raise SystemExit(3)"), "CE": ("c", "int main(void) { return 0 }")}
SLOW = frozenset({"go", "java", "rust", "cpp"})
"""Whose compilers take longest."""


def program(language: str, number: int, verdict: str) -> tuple[str, str]:
    """A program for problem `number` that gets the verdict; in another language where that is easier."""
    if verdict in FAILS:
        return FAILS[verdict]
    return language, RIGHT[language].replace("NUMBER", str(number + (verdict == "WA")))

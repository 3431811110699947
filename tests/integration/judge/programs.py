"""One small program for each language and each way to end."""

# ruff: noqa: E501  Programs on a line.

SUMS = {
    "c": '#include <stdio.h>\nint main(void){long a,b;if(scanf("%ld %ld",&a,&b)!=2)return 1;printf("%ld\\n",a+b);}',
    "cpp": "#include <iostream>\nint main(){long a,b;std::cin>>a>>b;std::cout<<a+b<<'\\n';}",
    "python": "a, b = map(int, input().split())\nprint(a + b)\n",
    "pypy": "a, b = map(int, input().split())\nprint(a + b)\n",
    "java": "import java.util.*;\npublic class Main { public static void main(String[] x) { Scanner s = new "
    "Scanner(System.in); System.out.println(s.nextLong() + s.nextLong()); } }",
    "go": 'package main\nimport "fmt"\nfunc main() { var a, b int64; fmt.Scan(&a, &b); fmt.Println(a + b) }',
    "rust": "use std::io::Read;\nfn main() { let mut s = String::new(); std::io::stdin().read_to_string(&mut s)"
    '.unwrap(); let t: i64 = s.split_whitespace().map(|x| x.parse::<i64>().unwrap()).sum(); println!("{}", t); }',
    "javascript": "const [a, b] = require('fs').readFileSync(0, 'utf8').split(/\\s+/).map(Number);\n"
    "console.log(a + b);\n",
    "kotlin": "fun main() { val (a, b) = readLine()!!.split(' ').map { it.toLong() }; println(a + b) }",
}
BROKEN = dict.fromkeys(SUMS, "this is (no program ;\n")
HUNGRY = {
    "c": "#include <stdlib.h>\n#include <string.h>\nint main(void){for(;;)memset(malloc(1<<20),1,1<<20);}",
    "cpp": "#include <vector>\nint main(){std::vector<int> v;for(;;)v.push_back(1);}",
    "python": "x = []\nwhile True:\n    x.append(bytearray(1 << 20))\n",
    "pypy": "x = []\nwhile True:\n    x.append(bytearray(1 << 20))\n",
    "java": "import java.util.*;\npublic class Main { public static void main(String[] x) { List<byte[]> l = new "
    "ArrayList<>(); for (;;) l.add(new byte[1 << 20]); } }",
    "go": "package main\nfunc main() { var x [][]byte; for { b := make([]byte, 1<<20); for i := range b { b[i] = 1 }"
    "; x = append(x, b) } }",
    "rust": "fn main() { let mut v: Vec<u64> = Vec::new(); loop { v.push(1); } }",
    "javascript": "const x = []; for (;;) x.push(Buffer.alloc(1 << 20, 1));\n",
    "kotlin": "fun main() { val l = mutableListOf<ByteArray>(); while (true) l.add(ByteArray(1 shl 20)) }",
}
FAILING = {
    "c": "int main(void){return 3;}",
    "cpp": '#include <stdexcept>\nint main(){throw std::runtime_error("x");}',
    "python": "raise SystemExit(3)\n",
    "pypy": "raise SystemExit(3)\n",
    "java": "public class Main { public static void main(String[] x) { throw new RuntimeException(); } }",
    "go": "package main\nfunc main() { panic(1) }",
    "rust": "fn main() { panic!() }",
    "javascript": "process.exit(3);\n",
    "kotlin": "fun main() { throw RuntimeException() }",
}

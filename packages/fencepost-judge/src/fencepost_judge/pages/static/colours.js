// Programs in colours: comments, texts, numbers and words that belong to the language. One pass of one expression; what
// it does not know stays as it is.
const WORDS = {
  c: `auto break case char const continue default do double else enum extern float for goto if inline int long register
    return short signed sizeof static struct switch typedef union unsigned void volatile while bool true false NULL`,
  cpp: `alignas auto bool break case catch char class const constexpr continue decltype default delete do double else
    enum explicit extern false float for friend goto if inline int long mutable namespace new noexcept nullptr operator
    override private protected public return short signed sizeof static struct switch template this throw true try
    typedef typename union unsigned using virtual void volatile while string vector map set pair`,
  go: `break case chan const continue default defer else fallthrough for func go goto if import interface map package
    range return select struct switch type var bool byte error float64 int int64 nil rune string true false`,
  java: `abstract boolean break byte case catch char class continue default do double else enum extends final finally
    float for if implements import instanceof int interface long new null package private protected public record return
    short static super switch this throw throws try var void volatile while true false String`,
  javascript: `async await break case catch class const continue default delete do else export extends false finally for
    function if import in instanceof let new null of return static super switch this throw true try typeof undefined var
    void while yield`,
  kotlin: `as break by class companion continue data do else false for fun if import in interface is null object
    override package private return sealed super this throw true try typealias val var when while Int Long String`,
  python: `and as assert async await break class continue def del elif else except finally for from global if import in
    is lambda nonlocal not or pass raise return try while with yield True False None int str list dict set range print
    input len`,
  rust: `as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move
    mut pub ref return self Self static struct super trait true type unsafe use where while i32 i64 u32 u64 usize String
    Vec Option bool char str`,
};
WORDS.pypy = WORDS.python;

const SLASHES = String.raw`//[^\n]*|/\*[\s\S]*?(?:\*/|$)`;
const DOUBLE = String.raw`"(?:\\[\s\S]|[^"\\\n])*"?`;
const SINGLE = String.raw`'(?:\\[\s\S]|[^'\\\n])*'?`;
const TICKS = "`[^`]*`?";
const TRIPLE = String.raw`"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)`;
const ONE = String.raw`'(?:\\[^\n]{1,8}?|[^'\\\n])'`;
const SHAPES = {
  c: { comment: SLASHES, text: `${DOUBLE}|${SINGLE}`, order: String.raw`^[ \t]*#[ \t]*\w+` },
  cpp: { comment: SLASHES, text: `${DOUBLE}|${SINGLE}`, order: String.raw`^[ \t]*#[ \t]*\w+` },
  go: { comment: SLASHES, text: `${DOUBLE}|${SINGLE}|${TICKS}` },
  java: { comment: SLASHES, text: `${DOUBLE}|${SINGLE}`, order: String.raw`@\w+` },
  javascript: { comment: SLASHES, text: `${DOUBLE}|${SINGLE}|${TICKS}` },
  kotlin: { comment: SLASHES, text: `${TRIPLE}|${DOUBLE}|${SINGLE}`, order: String.raw`@\w+` },
  python: { comment: String.raw`#[^\n]*`, text: `${TRIPLE}|${DOUBLE}|${SINGLE}`, order: String.raw`@\w+` },
  rust: { comment: SLASHES, text: `${DOUBLE}|${ONE}`, order: String.raw`#!?\[[^\]\n]*\]|\b\w+!` },
};
SHAPES.pypy = SHAPES.python;
const NUMBER = String.raw`\b\d[\w.]*`;
const NOTHING = "(?!)";
const known = new Map();

export function colour(place, text, language) {
  const rules = rulesOf(language);
  if (!rules) {
    place.textContent = text;
    return;
  }
  const made = document.createDocumentFragment();
  let told = 0;
  for (const found of text.matchAll(rules.expression)) {
    const kind = kindOf(found.groups, rules.words);
    if (!kind) continue;
    made.append(text.slice(told, found.index), span(kind, found[0]));
    told = found.index + found[0].length;
  }
  made.append(text.slice(told));
  place.replaceChildren(made);
}

function rulesOf(language) {
  const shape = SHAPES[language];
  if (shape && !known.has(language)) {
    const parts = { comment: shape.comment, text: shape.text, order: shape.order ?? NOTHING, number: NUMBER, word: "[A-Za-z_]\\w*" };
    const expression = Object.entries(parts).map(([name, part]) => `(?<${name}>${part})`).join("|");
    known.set(language, { expression: new RegExp(expression, "gm"), words: new Set(WORDS[language].split(/\s+/)) });
  }
  return known.get(language);
}

function kindOf(groups, words) {
  if (groups.word !== undefined) return words.has(groups.word) ? "keyword" : "";
  return ["comment", "text", "order", "number"].find((name) => groups[name] !== undefined);
}

function span(kind, text) {
  const made = document.createElement("span");
  made.className = `ink-${kind}`;
  made.textContent = text;
  return made;
}

"""Formulas in answers on the web page: LaTeX becomes MathML, and text outside formulas is unchanged."""
import json

import pytest

from test_chat import DONE, SCRIPTED, ask, open_page

# A formula without its delimiters, and the MathML elements that it becomes.
FORMULAS = [
    ("a", "<mi>a</mi>"),
    ("x^2_1", "<msubsup><mi>x</mi><mn>1</mn><mn>2</mn></msubsup>"),
    ("x^12", "<mrow><msup><mi>x</mi><mn>1</mn></msup><mn>2</mn></mrow>"),
    (r"\frac{1}{2}", "<mfrac><mn>1</mn><mn>2</mn></mfrac>"),
    (r"\sqrt[3]{x}", "<mroot><mi>x</mi><mn>3</mn></mroot>"),
    (r"\sum_{i=1}^n i", "<mrow><munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover><mi>i</mi></mrow>"),
    (r"\int_0^1 x\,dx", "<mrow><msubsup><mo>∫</mo><mn>0</mn><mn>1</mn></msubsup><mi>x</mi><mspace></mspace><mi>d</mi><mi>x</mi></mrow>"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "<mrow><mo>(</mo><mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>2</mn></mtd></mtr>"
                                              "<mtr><mtd><mn>3</mn></mtd><mtd><mn>4</mn></mtd></mtr></mtable><mo>)</mo></mrow>"),
    (r"\mathbb{R}^n \ni \hat x", "<mrow><msup><mi>ℝ</mi><mi>n</mi></msup><mo>∋</mo><mover><mi>x</mi><mo>^</mo></mover></mrow>"),
    (r"f'(x) \ne \text{none}", "<mrow><msup><mi>f</mi><mo>′</mo></msup><mo>(</mo><mi>x</mi><mo>)</mo><mo>≠</mo><mtext>none</mtext></mrow>"),
    (r"\left\{x\right.", "<mrow><mo>{</mo><mi>x</mi><mrow></mrow></mrow>"),
    # Unknown or unclosed parts are shown unchanged.
    (r"\unknown{x}", r"<mrow><mtext>\unknown</mtext><mi>x</mi></mrow>"),
    ("a}b", "<mrow><mi>a</mi><mtext>}</mtext><mi>b</mi></mrow>"),
    ("{a", "<mrow><mo>{</mo><mi>a</mi></mrow>"),
    ("<b>&amp;", "<mrow><mo>&lt;</mo><mi>b</mi><mo>&gt;</mo><mtext>&amp;</mtext><mi>a</mi><mi>m</mi><mi>p</mi><mo>;</mo></mrow>"),
]

# A Markdown text, the number of its formulas, and its text with the formulas as written.
TEXTS = [
    (r"so \(a\) and \(b_1\).", 2, r"so \(a\) and \(b_1\)."),
    ("so $a$ and $$b$$.", 2, "so $a$ and $$b$$."),
    ("It costs $5 and $6, or 7$ a piece.", 0, "It costs $5 and $6, or 7$ a piece."),
    (r"an open \(a + b", 0, r"an open \(a + b"),
    (r"an empty \(\) and \[ \]", 0, r"an empty \(\) and \[ \]"),
    (r"f(x), \[not\]: \(a_1 * b_2 * c\)", 2, r"f(x), \[not\]: \(a_1 * b_2 * c\)"),
    ("\\[\nx\n= 1\n- 2\n\\]", 1, "\\[\nx\n= 1\n- 2\n\\]"),
    ("- one $x^2$\n- two", 1, "one $x^2$two"),
    ("`$a$` is code", 0, "$a$ is code"),
    ("cost: \\$5 and \\$6", 0, "cost: $5 and $6"),
]

SHOWN = """(async () => {
    const {MarkdownView} = await import(new URL("web/markdown.js", document.baseURI));
    const root = document.createElement("div");
    const view = new MarkdownView(root);
    const text = %s;
    for (let size = 1; size <= text.length; ++size) view.set(text.slice(0, size), false);
    view.set(text, true);
    const count = root.querySelectorAll("math").length;
    for (const math of root.querySelectorAll("math")) math.replaceWith(math.dataset.written);
    for (const line of root.querySelectorAll("br")) line.replaceWith("\\n");
    return [count, root.textContent];
})()"""


@pytest.mark.parametrize("formula, tree", FORMULAS)
def test_a_formula_becomes_elements(browser, server, formula, tree):
    with browser.page() as page:
        open_page(page, server)
        made = page.run("""(async () => {
            const {mathElement} = await import(new URL("web/math.js", document.baseURI));
            const element = mathElement(%s, true, "").querySelector("mrow");
            for (const inner of element.querySelectorAll("*")) for (const name of inner.getAttributeNames()) inner.removeAttribute(name);
            return element.innerHTML.replaceAll(' xmlns="http://www.w3.org/1998/Math/MathML"', "");
        })()""" % json.dumps(formula))
        assert made == tree


@pytest.mark.parametrize("text, count, shown", TEXTS)
def test_no_character_is_lost(browser, server, text, count, shown):
    with browser.page() as page:
        open_page(page, server)
        assert page.run(SHOWN % json.dumps(text)) == [count, shown]


def test_hostile_formulas_take_linear_time_and_run_nothing(browser, server):
    with browser.page() as page:
        open_page(page, server)
        for text in ("$$" + "{" * 8000 + "$$", "$$" + "\\frac" * 1600 + "$$", "\\(" * 30000, "$a" * 30000, "\\[\n" * 5000,
                     "$$<img src=x onerror=window.hit=1>$$", "$$\\text{<script>window.hit=2</script>}$$"):
            page.run(SHOWN.replace("++size", "size += 997") % json.dumps(text))
        assert page.run("window.hit ?? null") is None and page.errors == []


def test_a_formula_is_shown_while_an_answer_comes(browser, server):
    script = SCRIPTED.replace("const hostile =", "const formula = 'The mean is \\\\(\\\\frac{a+b}{2}\\\\).'; const hostile =").replace(
        'content.startsWith("hostile") ? hostile', 'content.startsWith("mean") ? formula : content.startsWith("hostile") ? hostile')
    with browser.page(script=script) as page:
        open_page(page, server)
        ask(page, "mean")
        page.wait(DONE + " === 1")
        assert page.count(".message.assistant math mfrac") == 1
        box = page.run("(() => { const {width, height} = document.querySelector('math').getBoundingClientRect(); return [width, height]; })()")
        assert box[0] > 10 and box[1] > 10

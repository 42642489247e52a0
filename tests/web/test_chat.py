"""The chat of the web page, used in Chromium as its users do."""
import json
import os
import pathlib
import subprocess
import sys

from serving import ABACUS, serving, wait_until

SCRIPTED = (pathlib.Path(__file__).parent / "scripted.js").read_text()
KEY = "sk-bead-0001"
QUESTION = "Tom has 3 apples and buys 5 more. How many apples does he have now?"
# A long answer, which does not end soon.
LONG = {"extra": json.dumps({"ignore_eos": True, "min_tokens": 3900}), "max_tokens": "3900"}
DONE = "document.querySelectorAll('.message.assistant .figures').length"


def open_page(page, server, path="/"):
    page.open(server.url + path)
    page.wait("document.querySelector('#state').dataset.state === 'ready'")


def ask(page, text):
    page.click("#prompt")
    page.type(text)
    page.press("Enter")


def choose(page, **settings):
    """Fills in the settings panel."""
    page.click("#tab-settings")
    for name, value in settings.items():
        page.click("#settings [name=%s]" % name)
        page.run("document.activeElement.value = ''")
        page.type(value)
    page.click("#tab-engine")


def test_an_answer_streams_and_is_kept(browser, server):
    with browser.page() as page:
        open_page(page, server)
        ask(page, QUESTION)
        page.wait(DONE + " === 1")
        assert "3 + 5 = 8" in page.text(".message.assistant .text")
        assert "16 tokens" in page.text(".figures") and "first after" in page.text(".figures")
        page.open(server.url + "/")
        page.wait("document.querySelectorAll('#conversations li').length === 1")
        page.click("#conversations .open")
        assert "3 + 5 = 8" in page.text(".message.assistant .text") and page.text(".message.user .text") == QUESTION
        assert page.errors == []
        assert all(address.startswith((server.url + "/", "data:")) for address in page.requests), page.requests


def test_stop(browser, server):
    with browser.page() as page:
        open_page(page, server)
        choose(page, **LONG)
        ask(page, "plain")
        page.wait("(document.querySelector('.message.assistant .text')?.textContent.length ?? 0) > 20")
        assert page.text("#send") == "Stop" and page.run("document.querySelector('.message.assistant').ariaBusy") == "true"
        page.click("#send")
        page.wait(DONE + " === 1")
        assert "stopped" in page.text(".figures") and page.text("#send") == "Send"
        wait_until(lambda: server.metric("vllm:num_requests_running") == 0, "the engine goes on")
        # Do the same with the keyboard.
        ask(page, "plain")
        page.wait("document.querySelectorAll('.message.assistant').length === 2 && document.querySelector('#send').innerText === 'Stop'")
        page.press("Escape")
        page.wait(DONE + " === 2")
        assert page.errors == []


def test_retry_and_edit(browser, server):
    with browser.page() as page:
        open_page(page, server)
        choose(page, temperature="0", system="Answer.")
        ask(page, QUESTION)
        page.wait(DONE + " === 1")
        page.run("document.querySelector('.message.assistant').marked = true")
        page.click(".message.assistant footer button:last-of-type")
        page.wait(DONE + " === 1 && !document.querySelector('.message.assistant').marked")
        assert page.count(".message") == 2 and "= 8" in page.text(".message.assistant .text")
        page.click("#prompt")
        page.press("ArrowUp")
        page.run("document.querySelector('.edit textarea').select()")
        page.type(QUESTION.replace("5", "9"))
        page.press("Enter")
        page.wait(DONE + " === 1 && document.querySelector('.message.assistant .text').textContent.includes('12')")
        assert page.count(".message") == 2 and "buys 9" in page.text(".message.user .text")
        assert page.errors == []


def test_conversations(browser, server):
    with browser.page() as page:
        open_page(page, server)
        for i, text in enumerate(("Tom has 1 apple.", "Tom has 2 apples.")):
            ask(page, text)
            page.wait(DONE + " === 1")
            page.press("n", modifiers=1)
            page.wait("document.querySelectorAll('.message').length === 0")
            assert page.count("#conversations li") == i + 1
        assert page.run("document.activeElement.id") == "prompt"
        page.click("#conversations li:last-child .open")
        assert page.text(".message.user .text") == "Tom has 1 apple."
        page.click("#conversations li:last-child .remove")
        page.wait("document.querySelectorAll('#conversations li').length === 1")
        page.click("#toast button")
        page.wait("document.querySelectorAll('#conversations li').length === 2")
        assert page.text(".message.user .text") == "Tom has 1 apple."


def test_a_reload_returns_to_the_place(browser, server):
    with browser.page(height=500) as page:
        open_page(page, server)
        choose(page, extra=json.dumps({"ignore_eos": True}), max_tokens="400")
        for text in ("Tom has 1 apple.", "Tom has 2 apples."):
            ask(page, text)
            page.wait(DONE + " === 1")
            if "1" in text:
                page.press("n", modifiers=1)
                page.wait("document.querySelectorAll('.message').length === 0")
        page.click("#conversations li:last-child .open")
        page.wait("document.querySelector('.message.user .text').innerText === 'Tom has 1 apple.'")
        page.run("document.querySelector('#scroller').scrollTop = 7")
        page.wait("document.querySelector('#scroller').scrollTop === 7")
        page.click("#prompt")
        page.type("half a thought")
        page.run("new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))")
        page.run("void (document.marked = true)")
        page.command("Page.reload")
        page.wait("!document.marked && document.querySelector('#state')?.dataset.state === 'ready'")
        assert page.text(".message.user .text") == "Tom has 1 apple."
        assert page.run("document.querySelector('#scroller').scrollTop") == 7
        assert page.run("document.querySelector('#prompt').value") == "half a thought"
        assert page.errors == []


def test_headings_are_in_order(browser, server):
    """Heading levels are never skipped, whatever heading an answer begins with."""
    script = SCRIPTED.replace("const hostile =", "const outline = '### Third\\n\\n###### Sixth\\n\\n# First'; const hostile =").replace(
        'content.startsWith("hostile") ? hostile', 'content.startsWith("outline") ? outline : content.startsWith("hostile") ? hostile')
    levels = "[...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].filter((one) => one.checkVisibility()).map((one) => Number(one.tagName[1]))"
    with browser.page(script=script) as page:
        open_page(page, server)
        for text in (None, "outline", "again"):
            if text:
                ask(page, text)
                page.wait(DONE + " === %d" % (1 if text == "outline" else 2))
            found = page.run(levels)
            assert found[0] == 1 and all(later <= earlier + 1 for earlier, later in zip(found, found[1:])), found


def test_what_is_kept_is_bounded(browser, server):
    with browser.page() as page:
        open_page(page, server)
        kept = page.run("""(async () => {
            const {Conversations} = await import(new URL("web/conversations.js", document.baseURI));
            const all = new Conversations();
            let told = 0;
            all.onDropped = () => { ++told; };
            for (let i = 0; i < 60; ++i) {
                const one = all.create({});
                one.messages.push({role: "user", content: i + "x".repeat(100_000)});
                all.save(one);
            }
            const characters = Object.values({...localStorage}).join("").length;
            const again = new Conversations();
            localStorage.setItem("sluice.conversation.bad", "{}");
            return [characters, all.all.length, again.all.length, again.all[0].title.slice(0, 2), told, new Conversations().all.length];
        })()""")
    characters, count, found, newest, told, without_bad = kept
    assert 3_000_000 < characters < 3_600_000 and count == found == without_bad > 30 and newest == "59" and told > 20


def test_the_key_is_asked_for(browser):
    with serving(ABACUS, "--max-model-len", 512, "--api-key", KEY) as server, browser.page() as page:
        page.open(server.url + "/")
        page.wait("document.querySelector('#key-dialog').open")
        assert page.run("document.activeElement.id") == "key-field"
        page.type("sk-wrong")
        page.press("Enter")
        page.wait("document.querySelector('#key-dialog').open && document.querySelector('#key-note').innerText.includes('not accept')")
        page.type(KEY)
        page.press("Enter")
        page.wait("document.querySelector('#state').dataset.state === 'ready'")
        ask(page, QUESTION)
        page.wait(DONE + " === 1")
        assert "= 8" in page.text(".message.assistant .text")
        page.click("#show-code")
        assert "$SLUICE_API_KEY" in page.text("#code-text") and KEY not in page.text("#code-text")
        # The key is deleted with the tab, unless the user chooses to keep it.
        assert page.run("sessionStorage['sluice.key']") == KEY and page.run("localStorage['sluice.key'] ?? null") is None
    with serving(ABACUS, "--max-model-len", 512, "--api-key", KEY) as server, browser.page() as page:
        page.open(server.url + "/")
        page.wait("document.querySelector('#key-dialog').open")
        page.press("Escape")
        page.wait("document.querySelector('#state').innerText.includes('no key')")
        page.click("#state button")
        page.wait("document.querySelector('#key-dialog').open")


def test_the_request_as_command_and_program(browser, server, tmp_path):
    with browser.page() as page:
        open_page(page, server)
        choose(page, temperature="0", top_k="1", system="It's \"quoted\" $HOME `x` \\n é", stop="zzz")
        ask(page, QUESTION)
        page.wait(DONE + " === 1")
        page.click("#show-code")
        curl = page.run("document.querySelector('#code-text').textContent")
        page.press("Escape")
        page.wait("!document.querySelector('#code-dialog').open")
        page.click("#show-code")
        page.click("#tab-python")
        python = page.run("document.querySelector('#code-text').textContent")
        shown = page.run("JSON.parse(Object.entries(localStorage).find(([name]) => name.startsWith('sluice.conversation.'))[1]).messages[1].content")
    body = json.loads(curl.split("<<'JSON'\n")[1].rsplit("JSON", 1)[0])
    assert body["top_k"] == 1 and body["stop"] == ["zzz"] and body["messages"][0]["content"] == "It's \"quoted\" $HOME `x` \\n é"
    answered = subprocess.run(["bash", "-c", curl], capture_output=True, text=True, timeout=60)
    events = [json.loads(line[6:]) for line in answered.stdout.splitlines() if line.startswith("data: {")]
    assert shown and "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"]) == shown
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    answered = subprocess.run([sys.executable, "-c", python], capture_output=True, text=True, timeout=60, env=environment)
    assert answered.returncode == 0 and answered.stdout == shown, answered


def test_thoughts_and_tools(browser, server):
    with browser.page(script=SCRIPTED) as page:
        open_page(page, server)
        ask(page, "weather in Paris")
        page.wait(DONE + " === 1")
        assert page.text(".reasoning summary") == "Thought" and not page.run("document.querySelector('.reasoning').open")
        assert "get_weather" in page.text(".call figcaption") and json.loads(page.text(".call pre")) == {"city": "Paris", "unit": "celsius"}
        page.click(".results textarea")
        page.type("21 degrees")
        page.click(".results .primary")
        page.wait(DONE + " === 2")
        roles = [(message["role"], message.get("tool_call_id")) for message in page.run("window.asked.messages")]
        assert roles == [("user", None), ("assistant", None), ("tool", "call_1")]
        assert page.run("window.asked.messages[1].tool_calls[0].function.name") == "get_weather"
        assert page.count(".results") == 0
        ask(page, "break it")
        page.wait(DONE + " === 3")
        assert page.text(".message footer .problem") == "The engine is gone."


def test_what_a_model_writes_stays_text(browser, server):
    with browser.page(script=SCRIPTED) as page:
        open_page(page, server)
        ask(page, "hostile")
        page.wait(DONE + " === 1")
        text = ".message.assistant .text"
        assert page.count(text + " :is(script, img, [onclick], [onerror], [style])") == 0 and page.run("window.hit ?? null") is None
        links = page.run("[...document.querySelectorAll('%s a')].map((a) => [a.href, a.rel, a.target])" % text)
        assert [link[0] for link in links] == ["https://elsewhere.invalid/p.png", "https://elsewhere.invalid/(x)"]
        assert all("noopener" in link[1] and link[2] == "_blank" for link in links)
        assert "[a](javascript:window.hit=3)" in page.text(text) and "*no*" in page.text(text)
        assert page.text(text + " strong em") == "and" and page.text(text + " p > code") == "a<b"
        assert all(address.startswith(server.url) for address in page.requests)


def test_markdown(browser, server):
    with browser.page(script=SCRIPTED) as page:
        open_page(page, server)
        ask(page, "table")
        page.wait(DONE + " === 1")
        text = ".message.assistant .text "
        assert [page.count(text + part) for part in ("> ol > li", "ol ul > li", "figure.code", "tbody tr", "td.right", "blockquote")] == [3, 2, 1, 2, 4, 1]
        assert page.count(text + ".code-word") > 3 and page.text(text + "figcaption span") == "python"
        code = page.run("document.querySelector('.message.assistant pre code').textContent")
        compile(code, "shown", "exec")
        # A text that arrives in pieces gives the same result as the whole text, wherever it is
        # divided.
        differ = page.run("""(async () => {
            const {MarkdownView} = await import(new URL("web/markdown.js", document.baseURI));
            const text = `# Title\\n\\nOne **two**\\nthree\\n\\n- a\\n- b\\n\\n  more\\n\\n1. x\\n2. [x] y\\n\\n~~~js\\nlet a = "1";\\n~~~\\n\\n` +
                `| a | b |\\n|---|---|\\n| 1 | 2 |\\n\\n> q\\n> r\\n\\n---\\n- [ ] t\\n\\n\\`\\`\\`\\nopen`;
            const at_once = document.createElement("div");
            new MarkdownView(at_once).set(text, true);
            const wrong = [];
            for (let size = 1; size < 40; ++size) {
                const place = document.createElement("div");
                const view = new MarkdownView(place);
                for (let end = size; end < text.length; end += size) view.set(text.slice(0, end), false);
                view.set(text, true);
                if (!place.isEqualNode(at_once)) wrong.push([size, place.innerText]);
            }
            return wrong;
        })()""")
        assert differ == []


def pasted(page):
    """The clipboard's content."""
    page.click("#prompt")
    page.run("document.querySelector('#prompt').value = ''")
    page.command("Input.dispatchKeyEvent", type="keyDown", key="v", code="KeyV", windowsVirtualKeyCode=86, modifiers=2, commands=["paste"])
    page.command("Input.dispatchKeyEvent", type="keyUp", key="v", code="KeyV", windowsVirtualKeyCode=86, modifiers=2)
    return page.wait("document.querySelector('#prompt').value")


def test_copy(browser, server):
    """Copies an answer's code, a whole answer as Markdown, and the request; also in browsers without a clipboard API."""
    no_clipboard = "Object.defineProperty(navigator, 'clipboard', {value: undefined});"
    for script in (SCRIPTED, SCRIPTED + no_clipboard):
        with browser.page(script=script) as page:
            open_page(page, server)
            ask(page, "table")
            page.wait(DONE + " === 1")
            page.click("figure.code .copy")
            page.wait("document.querySelector('figure.code .copy').innerText !== 'Copy'")
            assert pasted(page).startswith("class Table:\n    def __init__")
            page.click(".message.assistant footer .copy")
            page.wait("document.querySelector('.message.assistant footer .copy').innerText !== 'Copy'")
            assert pasted(page).startswith("A **hash table** keeps values")
            page.click("#show-code")
            page.click("#code-actions .copy")
            page.wait("document.querySelector('#code-actions .copy').innerText !== 'Copy'")
            page.press("Escape")
            assert pasted(page).startswith("curl ")
            assert page.errors == []


def test_the_model_is_picked(browser):
    with serving(ABACUS, "other/name", "--max-model-len", 512, name="first") as server, browser.page() as page:
        open_page(page, server)
        assert page.run("[...document.querySelectorAll('#model option')].map((option) => option.value)") == ["first", "other/name"]
        asked = "document.querySelector('#code-text').textContent"
        for name in ("first", "other/name"):
            page.run("document.querySelector('#model').value = %s; document.querySelector('#model').dispatchEvent(new Event('change'))" % json.dumps(name))
            page.click("#new-chat")
            ask(page, QUESTION)
            page.wait(DONE + " === 1")
            page.click("#show-code")
            assert '"model": "%s"' % name in page.run(asked)
            page.press("Escape")
        open_page(page, server)
        assert page.run("document.querySelector('#model').value") == "other/name", "it is kept"
        assert page.errors == []


def test_behind_a_prefix(browser):
    with serving(ABACUS, "--max-model-len", 512, "--root-path", "/llm") as server, browser.page() as page:
        open_page(page, server, "/llm/")
        ask(page, QUESTION)
        page.wait(DONE + " === 1")
        assert "= 8" in page.text(".message.assistant .text") and page.errors == []
        asked = [address.removeprefix(server.url) for address in page.requests]
        assert "/llm/v1/chat/completions" in asked and all(path.startswith("/llm/") for path in asked)


def test_under_the_name_of_trtllm_serve(browser):
    with serving(ABACUS, "--max_seq_len", 512, program="trtllm-serve") as server, browser.page() as page:
        open_page(page, server)
        ask(page, QUESTION)
        page.wait(DONE + " === 1")
        assert "= 8" in page.text(".message.assistant .text")
        page.wait("document.querySelector('.card:last-of-type .value').innerText !== '–'")
        assert server.url + "/prometheus/metrics" in page.requests and server.url + "/metrics" not in page.requests and page.errors == []


def test_images_are_attached(browser, server):
    """The bundled model reads only text: the page shows the image and the server's error."""
    with browser.page() as page:
        open_page(page, server)
        page.run("""(() => {
            const bytes = Uint8Array.from(atob('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mNgYPgPAAEDAQAIicLsAAAAAElFTkSuQmCC'), (c) => c.charCodeAt(0));
            const data = new DataTransfer();
            data.items.add(new File([bytes], 'dot.png', {type: 'image/png'}));
            document.body.dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true}));
        })()""")
        page.wait("document.querySelectorAll('#attachments img').length === 1")
        page.click("#attachments button")
        page.wait("document.querySelectorAll('#attachments img').length === 0")
        page.run("""(() => {
            const data = new DataTransfer();
            data.items.add(new File([Uint8Array.of(137)], 'dot.png', {type: 'image/png'}));
            document.querySelector('#prompt').dispatchEvent(new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true}));
        })()""")
        page.wait("document.querySelectorAll('#attachments img').length === 1")
        ask(page, "What is this?")
        page.wait("document.querySelector('.message.assistant .problem') !== null")
        assert "messages[0].content[0].image_url" in page.text(".message.assistant .problem")
        assert page.run("document.querySelectorAll('.message.user img').length") == 1
        assert page.run("document.querySelectorAll('#attachments img').length") == 0

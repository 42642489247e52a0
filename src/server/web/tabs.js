// Tabs: one is selected; arrow keys go from one to the next.

// `onselect` is called with the selected tab: once now, then after each selection.
export function makeTabs(tabs, onselect) {
  const select = (tab, focus) => {
    for (const other of tabs) {
      const isSelected = other === tab;
      other.setAttribute("aria-selected", String(isSelected));
      other.tabIndex = isSelected ? 0 : -1;
    }
    if (focus) tab.focus();
    onselect(tab);
  };
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => select(tab, false));
    tab.addEventListener("keydown", (event) => {
      const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
      if (step) select(tabs[(i + step + tabs.length) % tabs.length], true);
    });
  });
  select(tabs[0], false);
}

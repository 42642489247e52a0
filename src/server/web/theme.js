// Before the first paint, applies the chosen colours unless they are the system's.
try {
  const theme = localStorage.getItem("sluice.theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch {
  // The browser stores nothing for this page: the system's colours apply.
}

// Before anything is painted: the colours that were chosen, where they are not the system's.
try {
  const theme = localStorage.getItem("sluice.theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch {
  // The browser keeps nothing for this page: it has the system's colours.
}

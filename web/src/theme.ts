/* Dark or light theme: the theme of the system, or the choice that the browser remembers. */
import { useEffect, useState } from "preact/hooks";

const KEY = "penstock-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<() => void>();

function stored(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // the browser refuses storage
  }
}

export function theme(): "dark" | "light" {
  const choice = stored() ?? document.documentElement.dataset.theme;

  if (choice === "dark" || choice === "light") return choice;
  return dark.matches ? "dark" : "light";
}

export function applyTheme(): void {
  document.documentElement.dataset.theme = theme();
  listeners.forEach((listener) => listener());
}

export function toggleTheme(): void {
  const next = theme() === "dark" ? "light" : "dark";

  try {
    localStorage.setItem(KEY, next);
  } catch {
    // Without storage, the choice lasts until the page is closed.
  }
  document.documentElement.dataset.theme = next;
  applyTheme();
}

export function useTheme(): "dark" | "light" {
  const [now, setNow] = useState(theme());

  useEffect(() => {
    const changed = () => setNow(theme());

    listeners.add(changed);
    return () => void listeners.delete(changed);
  }, []);
  return now;
}

dark.addEventListener("change", () => {
  if (!stored()) delete document.documentElement.dataset.theme;
  applyTheme();
});

/* Texts for screen readers, spoken when there is a pause. main.tsx has their live region. */

let speak: (text: string) => void = () => {};

export function onAnnounce(listener: (text: string) => void): () => void {
  speak = listener;
  return () => {
    speak = () => {};
  };
}

export function announce(text: string): void {
  speak(text);
}

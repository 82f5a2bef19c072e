/*
 * Changes of a list that the server sends instead of the list (src/ui/changes.h).
 *
 *   merge(["A", "B", "C"], { removed: [1], changed: [[0, "D"]] });   // ["D", "A", "C"]
 */

/* Returns the new list; `reply` is the whole list, or the changes of `old`. Throws if the
 * changes do not fit `old`. Entries that have not changed are the same objects. */
export function merge<T>(old: T[] | null, reply: unknown): T[] {
  if (Array.isArray(reply)) return reply as T[];
  const { removed, changed } = (reply ?? {}) as { removed?: unknown; changed?: unknown };

  if (!old || !Array.isArray(removed) || !Array.isArray(changed))
    throw new Error("the list has an unknown form");
  const gone = new Set<unknown>(removed);
  const kept = old.filter((_, i) => !gone.has(i));
  const made: T[] = [];
  let next = 0;

  for (const [index, entry] of changed as [number, T][]) {
    while (made.length < index && next < kept.length) made.push(kept[next++]!);
    if (made.length !== index) throw new Error("the changes do not fit the list");
    made.push(entry);
  }
  return made.concat(kept.slice(next));
}

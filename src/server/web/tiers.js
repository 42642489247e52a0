// The tiers that keep blocks which the KV cache has no room for, according to /metrics.

const sample = /^sluice:kv_tier_(used_bytes|capacity_bytes|loaded_blocks_total)\{tier="(ram|disk)"\} (\S+)$/gm;
const titles = {ram: "Memory", disk: "Disk"};

// [{name, used_bytes, capacity_bytes, loaded_blocks_total}], in the order of the text; [] without tiers.
export function tiersOf(text) {
  const tiers = new Map();
  for (const [, what, tier, word] of text.matchAll(sample)) {
    if (!tiers.has(tier)) tiers.set(tier, {name: titles[tier]});
    tiers.get(tier)[what] = Number(word);
  }
  return [...tiers.values()];
}

// The line of a tier: how full it is, and the number of blocks that came back from it. `size(bytes)` formats a size.
export function lineOfTier(tier, size) {
  const loaded = tier.loaded_blocks_total.toLocaleString("en");
  return [tier.name, `${size(tier.used_bytes)} of ${size(tier.capacity_bytes)}, ${loaded} blocks came back`];
}

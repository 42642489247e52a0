// Unicode characters of LaTeX commands, grouped by their class in MathML.

const pairs = (text) => Object.fromEntries(text.trim().split(/\s+/).map((pair) => {
  const cut = pair.indexOf("=");
  return [pair.slice(0, cut), pair.slice(cut + 1)];
}));

// Identifiers (mi).
export const letters = pairs(`
  alpha=α beta=β gamma=γ delta=δ epsilon=ϵ varepsilon=ε zeta=ζ eta=η theta=θ vartheta=ϑ iota=ι kappa=κ lambda=λ mu=μ
  nu=ν xi=ξ omicron=ο pi=π varpi=ϖ rho=ρ varrho=ϱ sigma=σ varsigma=ς tau=τ upsilon=υ phi=ϕ varphi=φ chi=χ psi=ψ omega=ω
  Gamma=Γ Delta=Δ Theta=Θ Lambda=Λ Xi=Ξ Pi=Π Sigma=Σ Upsilon=Υ Phi=Φ Psi=Ψ Omega=Ω
  infty=∞ partial=∂ nabla=∇ ell=ℓ hbar=ℏ Re=ℜ Im=ℑ aleph=ℵ emptyset=∅ varnothing=∅ imath=ı jmath=ȷ wp=℘ degree=°
  top=⊤ bot=⊥ angle=∠ triangle=△ square=□ blacksquare=■ Box=□ dots=… ldots=… dotsc=… dotsb=⋯ cdots=⋯ vdots=⋮ ddots=⋱ prime=′
  checkmark=✓ star=⋆ dagger=† ddagger=‡ copyright=© pounds=£ euro=€ S=§ P=¶`);

// Operators and relations (mo).
export const operators = pairs(`
  times=× div=÷ cdot=⋅ ast=∗ pm=± mp=∓ circ=∘ bullet=∙ oplus=⊕ ominus=⊖ otimes=⊗ odot=⊙ wedge=∧ vee=∨ land=∧ lor=∨ neg=¬
  lnot=¬ cap=∩ cup=∪ setminus=∖ le=≤ leq=≤ leqslant=⩽ ge=≥ geq=≥ geqslant=⩾ ne=≠ neq=≠ equiv=≡ approx=≈ sim=∼ simeq=≃
  cong=≅ propto=∝ ll=≪ gg=≫ prec=≺ succ=≻ subset=⊂ subseteq=⊆ subsetneq=⊊ supset=⊃ supseteq=⊇ in=∈ notin=∉ ni=∋ mid=∣
  nmid=∤ parallel=∥ perp=⊥ forall=∀ exists=∃ nexists=∄ vdash=⊢ models=⊨ therefore=∴ because=∵ colon=: doteq=≐ asymp=≍
  to=→ gets=← rightarrow=→ leftarrow=← leftrightarrow=↔ Rightarrow=⇒ Leftarrow=⇐ Leftrightarrow=⇔ iff=⇔ implies=⇒
  impliedby=⇐ longrightarrow=⟶ longleftarrow=⟵ Longrightarrow=⟹ Longleftrightarrow=⟺ mapsto=↦ hookrightarrow=↪ uparrow=↑
  downarrow=↓ updownarrow=↕ rightleftharpoons=⇌ rightharpoonup=⇀ nearrow=↗ searrow=↘ coloneqq=≔ triangleq=≜
  lt=< gt=> vert=| Vert=‖ backslash=\\ bmod=mod models=⊨ lesssim=≲ gtrsim=≳ trianglelefteq=⊴ wr=≀ amalg=⨿ diamond=⋄`);

// Operators whose bounds are placed below and above them in a display.
export const bigOperators = pairs(`
  sum=∑ prod=∏ coprod=∐ bigcap=⋂ bigcup=⋃ bigwedge=⋀ bigvee=⋁ bigoplus=⨁ bigotimes=⨂ bigsqcup=⨆`);
export const integrals = pairs("int=∫ iint=∬ iiint=∭ oint=∮ oiint=∯");

// Function names in upright type; those of `limits` have their bounds below.
export const functions = new Set(`arccos arcsin arctan arg cos cosh cot coth csc deg dim exp hom ker lg ln log sec sin sinh tan tanh
  sgn`.split(/\s+/));
export const limits = new Set("lim limsup liminf max min sup inf det gcd Pr argmax argmin".split(" "));

export const delimiters = pairs(`
  lbrace={ rbrace=} langle=⟨ rangle=⟩ lfloor=⌊ rfloor=⌋ lceil=⌈ rceil=⌉ lvert=| rvert=| lVert=‖ rVert=‖ lbrack=[ rbrack=]
  vert=| Vert=‖ uparrow=↑ downarrow=↓ backslash=\\`);

export const accents = pairs(`
  hat=^ widehat=^ bar=‾ overline=‾ vec=→ overrightarrow=→ overleftarrow=← tilde=~ widetilde=~ dot=˙ ddot=¨ check=ˇ breve=˘
  acute=´ grave=\` mathring=˚ overbrace=⏞`);
export const accentsBelow = pairs("underline=_ underbrace=⏟");

// Widths in em.
export const spaces = {",": "0.17", ":": "0.22", ">": "0.22", ";": "0.28", "!": "-0.17", " ": "0.25", thinspace: "0.17",
                       enspace: "0.5", quad: "1", qquad: "2", hspace: "0.5"};

// Maps letters and digits to an alphabet, given by its first characters; `others`: letters outside its range.
const alphabet = (upper, lower, digit, others = {}) => (character) => {
  if (others[character]) return others[character];
  const code = character.codePointAt(0);
  if (upper && code >= 65 && code <= 90) return String.fromCodePoint(upper + code - 65);
  if (lower && code >= 97 && code <= 122) return String.fromCodePoint(lower + code - 97);
  if (digit && code >= 48 && code <= 57) return String.fromCodePoint(digit + code - 48);
  return character;
};
export const alphabets = {
  mathbf: alphabet(0x1d400, 0x1d41a, 0x1d7ce),
  boldsymbol: alphabet(0x1d468, 0x1d482, 0x1d7ce, {h: "𝒉"}),
  bm: alphabet(0x1d468, 0x1d482, 0x1d7ce, {h: "𝒉"}),
  mathbb: alphabet(0x1d538, 0x1d552, 0x1d7d8, {C: "ℂ", H: "ℍ", N: "ℕ", P: "ℙ", Q: "ℚ", R: "ℝ", Z: "ℤ"}),
  mathcal: alphabet(0x1d49c, 0x1d4b6, 0, {B: "ℬ", E: "ℰ", F: "ℱ", H: "ℋ", I: "ℐ", L: "ℒ", M: "ℳ", R: "ℛ", e: "ℯ", g: "ℊ", o: "ℴ"}),
  mathscr: alphabet(0x1d49c, 0x1d4b6, 0, {B: "ℬ", E: "ℰ", F: "ℱ", H: "ℋ", I: "ℐ", L: "ℒ", M: "ℳ", R: "ℛ", e: "ℯ", g: "ℊ", o: "ℴ"}),
  mathfrak: alphabet(0x1d504, 0x1d51e, 0, {C: "ℭ", H: "ℌ", I: "ℑ", R: "ℜ", Z: "ℨ"}),
  mathsf: alphabet(0x1d5a0, 0x1d5ba, 0x1d7e2),
  mathtt: alphabet(0x1d670, 0x1d68a, 0x1d7f6),
};

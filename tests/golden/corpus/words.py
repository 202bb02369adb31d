"""The sentences, snippets and marks the corpus is put together from. All of it is our own text."""

SENTENCES = {
    "english": ["The gateway counts every token before it lets a prompt in.", "It didn't rain, so we'll walk; they're late and I'd rather not wait.",
                "A 128-page report (see §4.2) costs $1,234.56, i.e. about €1.100,00!", "“Quoted”—with dashes – and an ellipsis… she said.",
                "Where's the dog's bowl? IT'S HERE, you'Ll find it.", "Please summarise the document below in three sentences."],
    "german": ["Die Straße führt über die Brücke nach Süden.", "Größere Anfragen müssen länger warten als kleine.",
               "Donaudampfschifffahrtsgesellschaftskapitän ist ein langes Wort.", "Er sagte: „Das geht so nicht!“ und ging.", "Äpfel, Öl und Übermut kosten 3,50 €."],
    "french": ["L'été dernier, nous avons mangé des crêpes à l'île d'Oléron.", "Où est-ce que l'on compte les jetons ? Là-bas !",
               "« C'est déjà fini », répondit-elle en français.", "Le cœur a ses raisons ; l'œuf aussi.", "Ça coûte 12,50 € aujourd'hui."],
    "spanish": ["¿Cuántos tokens caben en la ventana de contexto?", "El niño comió piñas mañana y ayer; ¡qué raro!",
                "La pregunta llegó tarde, pero la respuesta fue rápida.", "Ése es el único camino según la señora Núñez."],
    "polish": ["Zażółć gęślą jaźń, a potem policz żetony.", "Każde zapytanie czeka w kolejce, aż zwolni się pamięć.", "Źródło znajduje się w Łodzi, nie w Śremie."],
    "turkish": ["İstanbul'da hava bugün çok güzel, değil mi?", "Işık hızıyla sayılan küçük parçalar.", "Çağrı sıraya girdi; öğleden sonra yanıtlandı."],
    "vietnamese": ["Tiếng Việt có nhiều dấu thanh khác nhau.", "Mỗi yêu cầu phải chờ đến lượt mình.", "Hôm nay trời đẹp, chúng ta đi dạo nhé?"],
    "russian": ["Сколько токенов помещается в это окно?", "Съешь ещё этих мягких французских булок, да выпей чаю.", "Очередь движется медленно, но верно — так и надо."],
    "ukrainian": ["Її запит прийшов о п'ятій годині.", "Ґанок, їжак і ґудзик стоять поруч.", "Скільки пам'яті займає цей текст?"],
    "greek": ["Πόσα κομμάτια χωράνε σε αυτό το παράθυρο;", "Η ουρά προχωρά αργά αλλά σταθερά.", "Ο Οδυσσέας γύρισε στην Ιθάκη."],
    "arabic": ["كم عدد الرموز في هذا النص؟", "السلام عليكم ورحمة الله وبركاته.", "اللُّغَةُ العَرَبِيَّةُ جميلةٌ جدًّا، وفيها ١٢٣ حرفًا.", "ينتظر كل طلب دوره في الصف."],
    "hebrew": ["כמה אסימונים יש בטקסט הזה?", "שָׁלוֹם עוֹלָם, מה שלומך היום?", "כל בקשה ממתינה לתורה."],
    "persian": ["این متن چند توکن دارد؟", "می‌خواهم برنامه‌نویسی یاد بگیرم.", "هر درخواست منتظر نوبت خود می‌ماند ۴۵۶."],
    "hindi": ["इस वाक्य में कितने टोकन हैं?", "क्षत्रिय, ज्ञान और श्रीमान् संयुक्ताक्षर हैं।", "हर अनुरोध अपनी बारी की प्रतीक्षा करता है १२३।"],
    "bengali": ["এই বাক্যে কতগুলি টোকেন আছে?", "প্রতিটি অনুরোধ তার পালার জন্য অপেক্ষা করে।", "আমি বাংলায় গান গাই ৪৫৬।"],
    "tamil": ["இந்த வரியில் எத்தனை சொற்கள் உள்ளன?", "ஒவ்வொரு கோரிக்கையும் காத்திருக்கிறது."],
    "thai": ["ข้อความนี้มีกี่โทเคน", "ทุกคำขอต้องรอคิวของตัวเองจนกว่าหน่วยความจำจะว่าง", "วันนี้อากาศดีมาก ๑๒๓"],
    "chinese": ["人工智能模型的上下文长度有限，请把文档分成小段。", "今天天气很好，我们去公园散步吧！", "請把這份報告翻譯成繁體中文，並在三句話內總結。", "价格是１２３元（含税），约合￥４５６。"],
    "japanese": ["このプロンプトには何トークンありますか？", "ﾊﾝｶｸｶﾀｶﾅと全角カタカナが混ざっています。", "が゙ギュッと縮む、神様の町。", "要求はそれぞれ順番を待ちます。"],
    "korean": ["이 문장은 토큰이 몇 개입니까?", "모든 요청은 자기 차례를 기다립니다.", "각각의 조합형 한글도 세어 봅시다."],
}
RIGHT_TO_LEFT = ["arabic", "hebrew", "persian"]

CODE = {
    "python": "def {a}({b}: list[int], *, {c}=None) -> dict:\n    \"\"\"Counts {b}.\"\"\"\n    if {b} is None or len({b}) > {n}:\n        raise ValueError(f\"{{{b}!r}}\")\n    return {{k: v ** 2 for k, v in enumerate({b}) if v % {n} != 0}}\n",
    "rust": "impl<'a, T: Clone> {A}<'a, T> {{\n\tpub fn {a}(&mut self, {b}: &'a [T]) -> Option<&T> {{\n\t\tself.{c}.iter().rev().find(|x| x.len() >= {n}_usize)?;\n\t\tNone // {b}\n\t}}\n}}\n",
    "javascript": "export const {a} = async ({{ {b}, {c} = {n} }}) => {{\n  const res = await fetch(`/api/${{{b}}}?x=${{{c}}}`);\n  return res.ok ? (await res.json())?.items ?? [] : null;\n}};\n",
    "c": "#include <stdio.h>\n\nstatic int {a}(const char *{b}, size_t {c})\n{{\n\tfor (size_t i = 0; i < {c}; ++i)\n\t\tif ({b}[i] == '\\0') return -{n};\n\treturn 0x{n:x} & ~(1u << 3);\n}}\n",
    "go": "func ({a} *{A}) {b}(ctx context.Context) (int64, error) {{\n\tif err := {a}.{c}(); err != nil {{\n\t\treturn 0, fmt.Errorf(\"{b}: %w\", err)\n\t}}\n\treturn {n}, nil\n}}\n",
    "sql": "SELECT {a}.id, COUNT(*) AS {b}\r\nFROM {a} LEFT JOIN {c} ON {c}.{a}_id = {a}.id\r\nWHERE {b} >= {n} AND name LIKE '%o''neil%'\r\nGROUP BY 1 ORDER BY 2 DESC;\r\n",
    "shell": "for {a} in \"${{{b}[@]}}\"; do\n  grep -rE '^[a-z]{{{n},}}$' \"${a}\" | awk '{{print $1}}' >> /tmp/{c}.log 2>&1 || exit {n}\ndone\n",
    "html": "<div class=\"{a}\" id='{b}-{n}'><!-- {c} -->\n  <a href=\"https://example.org/?q={a}&amp;n={n}#top\">{b}</a><br/>\n</div>\n",
    "haskell": "{a} :: (Ord a, Show a) => [a] -> Maybe {A}\n{a} xs | length xs > {n} = Just $ {A} {{ {b} = xs >>= show, {c} = \\x -> x <$> xs }}\n      | otherwise = Nothing\n",
    "yaml": "{a}:\n  - {b}: {n}\n    {c}: \"yes\"   # {a}\n  - &x {{{b}: ~, {c}: [1, 2.5e-3, 0x{n:x}]}}\n  - |\n    {a} {b}\n\n    {c}\n",
}
NAMES = ["count", "prompt_tokens", "maxModelLen", "kvCache", "HTTPServer", "x", "tmp2", "__init__", "getURL", "is_admitted", "Σ", "größe", "данные", "变量", "queueDepth", "MAX_BLOCKS", "i"]

# Control and other added tokens of every family, spelled out.
SPECIAL = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "<|vision_start|>", "<|image_pad|>", "<|fim_prefix|>",
    "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁sep｜>", "<|EOT|>", "<｜▁pad▁｜>", "<｜fim▁hole｜>",
    "<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|return|>", "<|call|>", "<|constrain|>", "<|startoftext|>", "<|endofprompt|>", "<|reserved_200017|>",
    "<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|python_tag|>", "<|reserved_special_token_7|>", "<|finetune_right_pad_id|>",
    "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<unk>", "<pad>", "<mask>", "<unused7>", "[multimodal]", "<start_of_image>", "<table>", "</h1>", "<0x0A>", "\u2581",
    "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[SYSTEM_PROMPT]", "[IMG]", "<SPECIAL_20>", "[THINK]", "[ARGS]",
]
BROKEN = ["<|im_start", "|im_end|>", "<|im_ start|>", "<｜User|>", "<| endoftext |>", "<|IM_START|>", "<<|im_end|>>", "<|im_end|", "<think", "</ think>", "<|", "|>", "<｜", "[INST", "<|im_end|><|im_end|>", "<0x0", "<start_of_turn"]

EMOJI = ["😀", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇳🇴", "❤️", "✊🏿", "🧑‍💻", "1️⃣", "☃", "🫠", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🤷🏻‍♀️", "😀\ufe0e", "\u200d", "✨🎉"]
SPACES = [" ", "  ", "   ", "\t", "\t\t", "\n", "\n\n", "\r\n", "\r", "\n \n", " \n", "\n ", "\u00a0", "\u3000", "\u2028", "\u2029", "\u200b", "\ufeff", "\u202f", "\x0b", "\x0c", "\x85", "\u1680", "\u2003", "\u205f", "\u00ad"]
DIGITS = ["0123456789", "٠١٢٣٤٥٦٧٨٩", "۰۱۲۳۴۵۶۷۸۹", "०१२३४५६७८९", "০১২৩৪৫৬৭৮৯", "๐๑๒๓๔๕๖๗๘๙", "０１２３４５６７８９", "𝟎𝟏𝟐𝟑𝟒𝟓𝟔𝟕𝟖𝟗", "²³¹⁰⁴", "ⅠⅡⅢⅣⅧ", "½¾⅓", "①②③⑩", "一二三四五"]
MARKS = ["e\u0301", "a\u0308", "n\u0303", "\u212b", "\ufb01", "\ufb03", "ﷺ", "ｶﾞ", "\u1e9b\u0323", "\u0958", "\u0344", "각", "각", "Ω", "K", "ẛ̣", "ǆ", "ŉ", "Ǆ", "\u0301", "q\u0307\u0323", "\u0f73", "㌔", "℡", "①", "２", "ﬀ", "İ", "ı", "ß", "ſ", "ẞ", "\u1100\u1161\u11a8", "\U0001d15e"]
CONTRACTIONS = ["I'm", "we'LL", "DON'T", "it's", "IT'S", "they've", "you'd", "o'clock", "'tis", "'ſ", "x'ſ", "d'ye", "l'été", "can’t", "we’re", "''s", "' s", "'ll", "y'all'd've", "rock'n'roll", "'S", "a'M", "İ'S", "9's", "é'd"]

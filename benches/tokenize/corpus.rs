//! Texts of six kinds, in parts of which none repeats another.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};

/// Parts of each kind: the first warms the caches, each of the others is new.
pub(crate) const PARTS: usize = 8;

/// Bytes of a part that is made up.
const PART_BYTES: usize = 128 * 1024;

const CHINESE: &str = "的 一 是 在 不 了 有 和 人 这 中 大 为 上 个 国 我 以 要 他 时 来 用 们 生 到 \
    作 地 于 出 就 分 对 成 会 可 主 发 年 动 同 工 也 能 下 过 子 说 产 种 面 而 方 后 多 定 行 学 法 所 民 得 \
    经 十 三 之 进 着 等 部 度 家 电 力 里 如 水 化 高 自 二 理 起 小 物 现 实 加 量 都 两 体 制 机 当 使 点 从 \
    业 本 去 把 性 好 应 开 它 合 还 因 由 其 些 然 前 外 天 政 四 日 那 社 义 事 平 形 相 全 表 间 样 与 关 各 \
    重 新 线 内 数 正 心 反 你 明 看 原 又 么 利 比 或 但 质 气 第 向 道 命 此 变 条 只 没 结 解 问 意 建 月 公 \
    无 系 军 很 情 者 最 立 代 想 已 通 并 提 直 题 党 程 展 五 果 料 象 员 革 位 入 常 文 总 次 品 式 活 设 及 \
    管 特 件 长 求 老 头 基 资 边 流 路 级 少 图 山 统 接 知 较 将 组 见 计 别 她 手 角 期 根 论 运 农 指 几 九 \
    模型 请求 文档 上下文 显存 网关 数据 系统 用户 服务 问题 时间 可以 我们 因为 所以 如果 没有 什么 今天 \
    人工智能 计算机 机器学习 中华人民共和国 社会主义 经济发展 科学技术 互联网 手机 城市 学校 医院 历史 文化";

const OTHERS: &str = "сегодня быстро модель память запрос очередь который человек время работа город \
    вопрос ответ Zugriffsverwaltung Speicher Anfrage schnell übermäßig Straße Geschäftsführer größer \
    モデル リクエスト メモリ 東京 ありがとう ございます 今日は 天気 コンピュータ 学校 電車 食べる \
    서울 모델 요청 메모리 안녕하세요 감사합니다 오늘 날씨 학교 컴퓨터 الذاكرة النموذج الطلب اليوم مدينة \
    مدرسة السلام عليكم स्मृति अनुरोध मॉडल आज शहर विद्यालय नमस्ते धन्यवाद หน่วยความจำ คำขอ วันนี้ \
    เมือง โรงเรียน สวัสดี זיכרון בקשה היום עיר élève mémoire requête naïve garçon où déjà señor mañana";

/// A kind of text.
pub(crate) struct Corpus {
    pub(crate) name: &'static str,
    pub(crate) parts: Vec<String>,
}

/// Every kind.
pub(crate) fn all() -> Vec<Corpus> {
    let sources = sources();
    let comments: Vec<&str> = sources.iter().filter_map(|line| comment(line)).collect();
    let random = &mut StdRng::seed_from_u64(7);
    let made = |name, part: &mut dyn FnMut() -> String| Corpus {
        name,
        parts: (0..PARTS).map(|_| part()).collect(),
    };
    vec![
        dealt("English", &paragraphs(&comments)),
        dealt("code", &sources),
        made("Chinese", &mut || chinese(random)),
        made("languages", &mut || words(random, OTHERS, " ")),
        made("JSON", &mut || records(random)),
        made("base64", &mut || {
            let bytes: Vec<u8> = (0..PART_BYTES * 3 / 4).map(|_| random.random()).collect();
            STANDARD.encode(bytes)
        }),
    ]
}

/// Text of `bytes` that was not seen before: paragraphs of a corpus in a new order.
pub(crate) fn fresh(corpus: &Corpus, random: &mut StdRng, bytes: usize) -> String {
    let mut lines: Vec<&str> = corpus
        .parts
        .iter()
        .flat_map(|part| part.split("\n\n"))
        .collect();
    let mut text = String::with_capacity(bytes + 4096);
    while text.len() < bytes {
        lines.shuffle(random);
        for line in &lines {
            text.push_str(line);
            text.push_str("\n\n");
            if text.len() >= bytes {
                break;
            }
        }
    }
    let end = (0..=bytes)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap();
    text.truncate(end);
    text
}

fn dealt(name: &'static str, pieces: &[String]) -> Corpus {
    let mut pieces: Vec<&String> = pieces.iter().collect();
    pieces.shuffle(&mut StdRng::seed_from_u64(3));
    let each = pieces.len().div_ceil(PARTS);
    let join = |pieces: &[&String]| pieces.iter().map(|piece| piece.as_str()).collect();
    Corpus {
        name,
        parts: pieces.chunks(each).map(join).collect(),
    }
}

/// Every file of sources, in stretches of 40 lines.
fn sources() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pieces = Vec::new();
    let mut folders = vec![root.join("src"), root.join("tests")];
    while let Some(folder) = folders.pop() {
        let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(Result::unwrap).collect();
        entries.sort_by_key(fs::DirEntry::path);
        for entry in entries {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(path).unwrap();
                let lines: Vec<&str> = text.split_inclusive('\n').collect();
                pieces.extend(lines.chunks(40).map(<[&str]>::concat));
            }
        }
    }
    pieces
}

fn comment(line: &str) -> Option<&str> {
    Some(line).filter(|line| line.contains("//"))
}

/// The prose in comments, without its slashes.
fn paragraphs(pieces: &[&str]) -> Vec<String> {
    let prose = |piece: &&str| {
        let lines = piece.lines().filter_map(|line| {
            let line = line.trim_start();
            let line = ["/// ", "//! ", "// "]
                .iter()
                .find_map(|mark| line.strip_prefix(mark))?;
            Some(line.to_owned() + "\n")
        });
        lines.collect::<String>() + "\n"
    };
    pieces.iter().map(prose).collect()
}

fn words(random: &mut StdRng, list: &str, between: &str) -> String {
    let list: Vec<&str> = list.split_whitespace().collect();
    let mut text = String::new();
    while text.len() < PART_BYTES {
        for _ in 0..random.random_range(3..14) {
            text.push_str(list.choose(random).unwrap());
            text.push_str(between);
        }
        text.push_str(["\n", ". ", ", ", "! "].choose(random).unwrap());
    }
    text
}

fn chinese(random: &mut StdRng) -> String {
    let spaced = words(random, CHINESE, "");
    spaced
        .replace(". ", "。")
        .replace(", ", "，")
        .replace("! ", "！")
}

fn records(random: &mut StdRng) -> String {
    let names: Vec<&str> = OTHERS.split_whitespace().collect();
    let mut text = String::new();
    while text.len() < PART_BYTES {
        let (id, ratio) = (random.random::<u32>(), random.random::<f32>());
        let name = names.choose(random).unwrap();
        let is_open: bool = random.random();
        let tag: u64 = random.random();
        writeln!(
            text,
            "{{\"id\": {id}, \"name\": \"{name}\", \"ratio\": {ratio}, \"open\": {is_open}, \
             \"tags\": [\"{tag:x}\", null], \"at\": {{\"x\": {}, \"y\": -{}}}}},",
            id % 977,
            id % 31
        )
        .unwrap();
    }
    text
}

"""Translation of Chinese, Japanese, Korean, German, French and Spanish words about training into English ones."""

from __future__ import annotations

import re

_CHINESE = (
    (r"[单多]机多卡", " distributed "),
    (r"(?<=[\u4e00-\u9fff])(?=\d)", " "),
    (r"(?:显|加速)?卡(?:的)?数量?|GPU ?(?:数量?|个数)", "GPUs"),
    (r"(?:节点|机器)数量?(?!据)", "nodes"),
    (r"吞吐[量率]?|训练速度", "throughput"),
    (r"加速比(?:只有|仅?为|是) ?(\d+(?:\.\d+)?)", r" \1x speedup "),
    (r"加速比", "speedup"),
    (r"(?:并行|扩展|加速)效率", "efficiency"),
    (r"相比于?|低于", " compared to"),
    (r"原来的[ *]*1/(\d+)", r" \1x slower "),
    (r"单步(?:迭代)?(?:耗时|时间)|每步(?:耗时|时间)|每个?(?:iter|step|batch)(?:耗时|时间)", " time per step "),
    (r"[一每]个 ?(?=batch|iter|step|epoch)", " per "),
    (r"(?<=\d) ?[个次] ?(?=[A-Za-z])", " "),
    (r"次?迭代", " iterations "),
    (r" ?以太网", " ethernet "),
    (r"均为|每台(?:机器)?|每机", " each "),
    (r"每轮(?:耗时|时间)|(?:每|单)个? ?epoch(?:训练)?(?:耗时|时间)", "time per epoch"),
    (r"训练(?:总)?(?:耗时|时间)", "training time"),
    (r"耗时|用时", " time "),
    (r"性能", "performance"),
    (r"芯片|(?:显卡|GPU ?)型号", "chip"),
    (r"模型", "model"),
    (r"配置", "config"),
    (r"批(?:次)?大小", "batch size"),
    (r"张/秒", "images/s"),
    (r"毫秒", " ms"),
    (r"秒", " s"),
    (r"分钟", " minutes"),
    (r"(?<=\d) ?(?:到|至) ?(?=\d)", "-"),
    (r"每秒(?:处理|训练)? ?约?(\d+) ?(?:[张条]|个?样本)", r" \1 samples/s "),
    (r"个?小时", " hours"),
    (r"(?<=\d) ?天", " days"),
    (r"/ ?步|每步", "/step"),
    (r"万兆(?:网卡)?", "10 GbE "),
    (r"千兆(?:网卡)?", "1 GbE "),
    (r"每[张个]?卡", " per GPU "),
    (r"单[机台](?:机器|服务器)?|单个?节点", " 1 node "),
    (r"[双两]机|[两二]台(?:机器|服务器)?", " 2 nodes "),
    (r"[双两][块张]?儿?卡", " 2 GPUs "),
    (r"一(?:块儿?)?卡", " 1 GPU "),
    (r"四卡", " 4 GPUs "),
    (r"八卡", " 8 GPUs "),
    (r"(?<=\d) ?个?(?:节点|台(?:机器|服务器)?|机)", " nodes "),
    (r"单卡", " 1 GPU "),
    (r"单 ?(?=GPU)", " 1 "),
    (r"(?<=\d) ?(?:[张块个]?卡|张)", " GPUs "),
    (r"(?<=[A-Za-z])(?=[\u4e00-\u9fff])", " "),
)
_GERMAN = (
    (r"eine[nmr]? (?=Knoten|GPU)", "one "),
    (r"zwei", "two"),
    (r"drei", "three"),
    (r"vier", "four"),
    (r"acht", "eight"),
    (r"gleiche[rn]? globale[rn]? Batch(?:größe|size)?", "same global batch size"),
    (r"Anzahl(?: der)?", "number of"),
    (r"(?:Rechen)?Knoten", "nodes"),
    (r"Durchsatz", "throughput"),
    (r"Beschleunigung", "speedup"),
    (r"Effizienz", "efficiency"),
    (r"Bilder", "images"),
    (r"pro (?=Schritt|Epoche|Sekunde|Stunde|GPU|nodes)", "per "),
    (r"Schritte?", "step"),
    (r"Epochen?", "epoch"),
    (r"(?:Lauf|Trainings)zeit|Trainingsdauer", "training time"),
    (r"Zeit|Dauer", "time"),
    (r"dauer[nt]|braucht|brauchen", "takes"),
    (r"Sekunden?", "seconds"),
    (r"Minuten?", "minutes"),
    (r"Stunden?", "hours"),
    (r"Tagen?|Tag", "days"),
)
_FRENCH = (
    (r"n(?:œ|oe)uds?|machines?", "nodes"),
    (r"débit", "throughput"),
    (r"par (?=itération|époque|étape|epoch|GPU|pas)", "per "),
    (r"itérations?", "iteration"),
    (r"époques?", "epoch"),
    (r"étapes?", "step"),
    (r"(?:le |la )?même batch (?:global|total)", "same global batch"),
    (r"secondes?", "seconds"),
    (r"heures?", "hours"),
    (r"jours?", "days"),
    (r"prend|prennent|dure(?:nt)?", "takes"),
)
_SPANISH = (
    (r"imágenes", "images"),
    (r"un (?=nodo|GPU)", "one "),
    (r"nodos?|máquinas?", "nodes"),
    (r"rendimiento", "throughput"),
    (r"por (?=época|iteración|paso|epoch|GPU)", "per "),
    (r"épocas?", "epoch"),
    (r"iteraci(?:ón|ones)", "iteration"),
    (r"pasos?", "step"),
    (r"segundos?", "seconds"),
    (r"minutos?", "minutes"),
    (r"horas?", "hours"),
    (r"días?", "days"),
    (r"tardan?", "takes"),
)
_JAPANESE = (
    (r"1 ?秒間に約? ?(\d+) ?(?:例|枚|件|サンプル)", r" \1 samples/s "),
    (r"単一の ?(?=GPU)", " 1 "),
    (r"(?<=\d) ?つ(?:すべて)?の ?(?=GPU)", " "),
    (r"(?<=\d) ?(?:ノード|台)", " nodes "),
    (r"ノード数?", "nodes"),
    (r"(?<=\d) ?枚", " GPUs "),
    (r"単一GPUと比べ(?:て)?", " compared to 1 GPU "),
    (r"(?<=GPU)(?=[\u3040-\u30ff])", " "),
    (r"(?<=\d) ?倍", "x "),
    (r"速度", "speed "),
    (r"スループット", "throughput"),
    (r"エポック", " epoch "),
    (r"ステップ", " step "),
    (r"時間", " hours "),
    (r"分", " minutes "),
    (r"秒", " s "),
)
_KOREAN = (
    (r"GPU ?두 ?대", "2 GPUs "),
    (r"단일 (?=GPU)", "single "),
    (r"속도 향상", "speedup"),
    (r"(?<=\d) ?배", "x"),
    (r"GPU ?(\d+) ?(?:개|장|대)", r"\1 GPUs "),
    (r"노드", "nodes"),
    (r"처리량", "throughput"),
    (r"에포크", "epoch"),
    (r"시간", " hours"),
    (r"분", " minutes"),
    (r"초", " s"),
)
"""Patterns in the order in which they are replaced, each with the English words."""
_LANGUAGES = tuple(
    (re.compile(sign), [(re.compile(form.format(pattern), re.IGNORECASE), words) for pattern, words in of])
    for sign, form, of in (
        (r"[\u3040-\u30ff]", "{}", _JAPANESE),
        (r"[\uac00-\ud7af]", "{}", _KOREAN),
        (r"[\u4e00-\u9fff]", "{}", _CHINESE),
        (
            r"\b(?:Anzahl|Knoten|Durchsatz|Schritte?|Epochen?|Laufzeit|dauert|Beschleunigung|Bilder|Sekunden|Stunden)\b",
            r"\b(?:{})\b",
            _GERMAN,
        ),
        (r"\b(?i:n(?:œ|oe)uds?|itérations?|époques?|débit)\b", r"\b(?:{})\b", _FRENCH),
        (r"\b(?i:nodos?|imágenes|épocas?|iteración|tardan?|segundos|minutos por)\b", r"\b(?:{})\b", _SPANISH),
    )
)
"""Pattern that identifies each language, and the language's words."""


def in_english(text: str) -> str:
    """Return a text with its words about training translated to English, line by line."""
    for sign, words_of in _LANGUAGES:
        if sign.search(text):
            for pattern, words in words_of:
                text = pattern.sub(words, text)
            # Inserted counts are surrounded by blanks; two blanks would separate columns.
            text = re.sub(r"(?<=nodes)  (?=\d)|(?<=node)  (?=\d)", " ", text)
    return text

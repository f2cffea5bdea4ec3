"""The style of a report's HTML: on the screen, narrow and wide, and on paper."""

from __future__ import annotations

STYLE = """
:root{color-scheme:light}
*{box-sizing:border-box}
body{margin:0 auto;padding:24px 20px 40px;max-width:860px;background:#fff;color:#0b1620;overflow-wrap:anywhere;
font:15px/1.5 system-ui,"Segoe UI",Roboto,"Helvetica Neue",Arial,"Noto Sans","Noto Sans CJK SC","PingFang SC",sans-serif}
.brand{margin:0;color:#0a5468;font-weight:650;letter-spacing:.04em}
h1{margin:0 0 4px;font-size:28px;line-height:1.2}
h2{margin:34px 0 10px;padding-top:12px;border-top:1px solid #d5dce2;font-size:20px;line-height:1.3}
h3{margin:22px 0 8px;font-size:16px}
p{margin:0 0 10px}
.subject{font-size:17px}
.small,.below,footer{color:#465461;font-size:13px}
.verdict{margin:18px 0 6px;padding:10px 14px;border-left:5px solid #5f6b76;background:#f4f6f8;font-size:20px;font-weight:650}
.verdict.good{border-color:#1f7a4d}.verdict.bad{border-color:#b3261e}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px;margin:14px 0}
.figures div{padding:10px 12px;border:1px solid #d5dce2;border-radius:8px}
.figures dt{color:#465461;font-size:13px}.figures dd{margin:0;font-size:20px;font-weight:600}
.figures dd.below{font-size:13px;font-weight:400}
.table{margin:10px 0 18px;overflow-x:auto}
table{width:100%;border-collapse:collapse;font-size:13.5px;font-variant-numeric:tabular-nums}
caption{padding:4px 0;text-align:left;font-weight:600}
th,td{padding:5px 10px 5px 0;border-bottom:1px solid #e3e8ec;text-align:left;vertical-align:top}
th{overflow-wrap:break-word;border-bottom:2px solid #b9c3cb;color:#465461;font-weight:600}
td{overflow-wrap:anywhere;min-width:4em}.n,.s{overflow-wrap:normal;white-space:nowrap}.n{text-align:right}.n:first-child{text-align:left}
.heard{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}.paper{display:none}
figure{margin:14px 0}figcaption{font-weight:600;margin-bottom:4px}
.chart{display:block;width:100%;height:auto;font-family:inherit}
.findings{margin:0;padding:0;list-style:none}
.findings li{margin:0 0 8px;padding:8px 12px;border-left:4px solid #3f6fb0;background:#f4f6f8}
.findings .warning{border-color:#b26a00}.findings .refusal{border-color:#b3261e}
pre{margin:8px 0 14px;padding:10px 12px;border:1px solid #d5dce2;border-radius:6px;background:#f4f6f8;
white-space:pre-wrap;overflow-wrap:anywhere;font-size:12.5px}
a{color:#0a5468;overflow-wrap:anywhere}
footer{margin-top:34px;padding-top:12px;border-top:1px solid #d5dce2;overflow-wrap:anywhere}
@media screen{td:not(.s):not(.n){min-width:11em}}
@media (max-width:520px){body{padding:16px 14px 30px}h1{font-size:23px}.figures dd{font-size:18px}}
@page{size:A4;margin:15mm 15mm 16mm;@bottom-right{content:counter(page) " / " counter(pages);color:#465461;font-size:8pt}}
@page across{size:A4 landscape;margin:12mm 12mm 16mm}
@media print{
body{max-width:none;padding:0;font-size:10pt;line-height:1.4}
h1{font-size:20pt}h2{margin-top:14pt;padding-top:8pt;font-size:14pt}h2,h3,figcaption,caption,thead{break-after:avoid}
figure,.figures,.verdict,.findings li,tr,.few,pre{break-inside:avoid}.verdict{break-after:avoid}
tbody tr:nth-child(-n+3),tbody tr:nth-last-child(-n+2){break-before:avoid}
.chart{max-width:150mm}p{orphans:3;widows:3}
thead{display:table-header-group}
.table{overflow:visible;margin:8pt 0 12pt}.wide{page:across}.screen{display:none}.paper{display:block}
table{font-size:8.5pt}th,td{padding:2.2pt 7pt 2.2pt 0;min-width:0}
.wide table,.paper table,.dense table{font-size:7pt}.wide th,.wide td,.paper th,.paper td,.dense th,.dense td{padding:1.6pt 4pt 1.6pt 0}.dense .s{white-space:normal}.wide .s,.paper .s,th,th.n{white-space:normal}
.verdict,.findings li,pre{background:none}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}
}
""".replace("\n", "")

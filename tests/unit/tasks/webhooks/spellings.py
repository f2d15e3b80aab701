"""Ways to write a URL, those that lead to the inside or may be read in two ways, and those that are good."""

# ruff: noqa: RUF001, SIM905 - letters that look like others are what this is about; and so many are read best as text

from __future__ import annotations

LOOPBACK = """
https://127.0.0.1/ https://127.0.0.1:8080/x https://127.0.0.2 https://127.255.255.254/ https://127.127.127.127/
https://2130706433/ https://017700000001/ https://0x7f000001/ https://0X7F000001/ https://0x7f.0.0.1/
https://0177.0.0.1/ https://0177.0.0.01/ https://0177.0x0.0.1/ https://00000177.0.0.1/ https://127.1/ https://127.0.1/
https://0x7f.1/ https://0177.1/ https://127.0.0.0x1/ https://127.0x1/ https://127.00000000001/ https://127.0.0.01/
https://127.000.000.001/ https://4294967295/ https://4294967296/ https://6425673729/ https://0x17f000001/ https://0/
https://0x0/ https://00/ https://0.0/ https://0.0.0.0/ https://0.0.0.0:80/ https://0.0.0.1/ https://0.1.2.3/
https://127.0.0.1./ https://127.1./ https://2130706433./ https://0x7f.0.0.1./ https://0x/ https://1.2.3.4.5/
https://127.0.0.256/ https://256.256.256.256/ https://127.0.0.999/ https://example.com.1/ https://foo.0x4/
https://1/ https://8.8.8/ https://134744072/ https://0x08080808/ https://010.8.8.8/ https://08.8.8.8/
https://localhost/ https://LOCALHOST/ https://LocalHost:443/ https://localhost./ https://a.localhost/
https://a.b.localhost./ https://localhost.localdomain/ https://foo.localdomain/ https://ip6-localhost/
""".split()

PRIVATE = """
https://10.0.0.0/ https://10.0.0.1/ https://10.255.255.255/ https://172.16.0.1/ https://172.31.255.255/
https://192.168.0.1/ https://192.168.255.255/ https://167772161/ https://0xa000001/ https://012.0.0.1/ https://10.1/
https://0xc0.0xa8.0.1/ https://3232235521/ https://192.168.1/ https://0300.0250.0.1/
https://100.64.0.1/ https://100.127.255.255/ https://100.100.100.200/latest/meta-data/
https://169.254.0.1/ https://169.254.169.254/ https://169.254.169.254/latest/meta-data/ https://169.254.170.2/
https://2852039166/ https://0xa9fea9fe/ https://0251.0376.0251.0376/ https://0xa9.254.0251.254/ https://169.16689662/
https://168.63.129.16/ https://192.0.0.1/ https://192.0.0.192/ https://192.0.0.170/ https://192.88.99.1/
https://192.0.2.1/ https://198.51.100.7/ https://203.0.113.200/ https://198.18.0.1/ https://198.19.255.255/
https://224.0.0.1/ https://239.255.255.255/ https://240.0.0.1/ https://255.255.255.254/ https://255.255.255.255/
""".split()

IPV6 = """
https://[::]/ https://[::]:80/ https://[::1]/ https://[0:0:0:0:0:0:0:1]/ https://[0000::0001]/ https://[::0.0.0.1]/
https://[::1%25eth0]/ https://[::1%eth0]/ https://[fe80::1%25lo]/ https://[::127.0.0.1]/ https://[::7f00:1]/
https://[::10.0.0.1]/ https://[::8.8.8.8]/ https://[::ffff:127.0.0.1]/ https://[::FFFF:127.0.0.1]/
https://[::ffff:7f00:1]/ https://[0:0:0:0:0:ffff:7f00:0001]/ https://[::ffff:10.0.0.1]/ https://[::ffff:a00:1]/
https://[::ffff:169.254.169.254]/ https://[::ffff:a9fe:a9fe]/ https://[::ffff:192.168.1.1]/ https://[::ffff:0.0.0.0]/
https://[::ffff:100.64.0.1]/ https://[::ffff:255.255.255.255]/ https://[::ffff:0:127.0.0.1]/
https://[::ffff:0:8.8.8.8]/ https://[64:ff9b::127.0.0.1]/ https://[64:ff9b::7f00:1]/ https://[64:ff9b::10.0.0.1]/
https://[64:ff9b::169.254.169.254]/ https://[64:ff9b::a9fe:a9fe]/ https://[64:ff9b::192.168.0.1]/
https://[64:ff9b::0.0.0.0]/ https://[64:ff9b:1::127.0.0.1]/ https://[64:ff9b:1::8.8.8.8]/
https://[64:ff9b:1:ffff:ffff:ffff:7f00:1]/ https://[64:ff9b:2::1]/ https://[64:ff9b:0:1::808:808]/
https://[2002:7f00:1::]/ https://[2002:7f00:0001::1]/ https://[2002:a00:1::1]/ https://[2002:a9fe:a9fe::]/
https://[2002:c0a8:101::1]/ https://[2002:808:808::1]/ https://[2001::1]/ https://[2001:0:7f00:1::]/
https://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/ https://[2001:0:0:0:0:0:80ff:fffe]/ https://[2001:10::1]/
https://[2001:20::1]/ https://[2001:2::1]/ https://[2001:db8::1]/ https://[2001:db8:ffff::]/ https://[3fff::1]/
https://[3ffe::1]/ https://[100::1]/ https://[5f00::1]/ https://[4000::1]/ https://[e000::1]/ https://[200::1]/
https://[fc00::1]/ https://[fd00::1]/ https://[fd00:ec2::254]/ https://[fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]/
https://[fe80::1]/ https://[febf::1]/ https://[fe80::5efe:10.0.0.1]/ https://[fec0::1]/ https://[feff::1]/
https://[ff02::1]/ https://[ff00::]/ https://[ff0e::1]/ https://[2606:4700::5efe:10.0.0.1]/
https://[2606:4700::200:5efe:127.0.0.1]/ https://[2606:4700::5efe:7f00:1]/
https://[::1 https://::1/ https://::1]/ https://[]/ https://[:::]/ https://[1::2::3]/ https://[g::1]/ https://[1]/
https://[127.0.0.1]/ https://[localhost]/ https://[v1.fe80::a]/ https://[::1]x/ https://x[::1]/ https://[[::1]]/
https://[::1]]/ https://[::ffff:127.1]/ https://[::ffff:0x7f.0.0.1]/ https://[::ffff:127.0.0.01]/ https://2001:db8::1/
https://[2606:4700::1111].example.com/ https://[2606:4700::1111]:/ https://[2606:4700::1111]:99999/
""".split()

NAMES = """
https://metadata.google.internal/ https://metadata.google.internal./computeMetadata/v1/ https://METADATA.GOOGLE.INTERNAL/
https://db.internal/ https://printer.local/ https://router.lan/ https://nas.home/ https://vault.corp/
https://wiki.intranet/ https://x.private/ https://x.home.arpa/ https://1.0.0.127.in-addr.arpa/ https://a.onion/
https://a.test/ https://a.invalid/ https://a.example/ https://kubernetes.default.svc/ https://x.y.svc.cluster.local/
https://consul.service.consul/ https://postgres/ https://redis:6379/ https://metadata/ https://instance-data/
https://valkey./ https://com/
""".split()

DISGUISED = [
    "https://１２７.０.０.１/",
    "https://127。0。0。1/",
    "https://127．0．0．1/",
    "https://127｡0｡0｡1/",
    "https://①②⑦.⓪.⓪.①/",
    "https://①②⑦.⓪.⓪.①:8080/",
    "https://𝟏𝟐𝟕.𝟎.𝟎.𝟏/",
    "https://８.８.８.８/",
    "https://٣.٣.٣.٣/",
    "https://２１３０７０６４３３/",
    "https://０x7f.1/",
    "https://ｌｏｃａｌｈｏｓｔ/",
    "https://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/",
    "https://loc\u00adalhost/",
    "https://local\u200bhost/",
    "https://local\u2060host/",
    "https://ⅼocalhost/",
    "https://metadata.google。internal/",
    "https://a。localhost/",
    "https://127%2e0%2e0%2e1/",
    "https://%31%32%37.0.0.1/",
    "https://%6c%6f%63alhost/",
    "https://example.com%2f@127.0.0.1/",
    "https://example.com%00.127.0.0.1/",
    "https://example.com%23@127.0.0.1/",
    "https://example.com％2eevil/",
    "https://example.com／@127.0.0.1/",
    "https://example.com＠127.0.0.1/",
    "https://example.com？.127.0.0.1/",
    "https://example.com：80@127.0.0.1/",
    "https://℀.example.com/",
    "https://example.com＼.evil.com/",
]

CONFUSING = [
    "",
    " ",
    "example.com",
    "//example.com/",
    "/etc/passwd",
    "https:",
    "https:/",
    "https://",
    "https:///",
    "https:///example.com/",
    "https:example.com",
    "https:/example.com",
    "https:\\\\example.com",
    "https://example.com\\@127.0.0.1/",
    "https://127.0.0.1\\@example.com/",
    "https://example.com\\.evil.com/",
    "https://user@example.com/",
    "https://user:pass@example.com/",
    "https://user:pass@127.0.0.1/",
    "https://example.com@127.0.0.1/",
    "https://127.0.0.1@example.com/",
    "https://@example.com/",
    "https://:@example.com/",
    "https://example.com:80@127.0.0.1/",
    "https://foo@127.0.0.1:80@example.com/",
    "https://example.com#@127.0.0.1/",
    "https://127.0.0.1#@example.com/",
    "https://example.com/#",
    "https://example.com/#/127.0.0.1",
    "https://example.com/a#b",
    "https://example.com?#",
    "https://#/",
    "https://?/",
    "https://example.com:/",
    "https://example.com:0/",
    "https://example.com:00443/",
    "https://example.com:65536/",
    "https://example.com:99999/",
    "https://example.com:4294967739/",
    "https://example.com:-1/",
    "https://example.com:+443/",
    "https://example.com:443x/",
    "https://example.com:0x1bb/",
    "https://example.com:４４３/",
    "https://example.com:80:80/",
    "https://example.com: 443/",
    "https://:443/",
    " https://example.com/",
    "https://example.com/ ",
    "https://exa mple.com/",
    "https://example.com/a b",
    "https://example.com/\u00a0",
    "https://example.com/\u2003x",
    "https://example.com/\u2028x",
    "https://example.com\t.evil.com/",
    "https://exam\nple.com/",
    "https://example.com/\r\nHost: 127.0.0.1",
    "https://example.com/\x00",
    "https://example.com/\x7f",
    "https://example.com/\x85",
    "https://example.com/\ud800",
    "https://example.com/\u202etxt.exe",
    "https://example.com/\ufeff",
    "\ufeffhttps://example.com/",
    "http://example.com/",
    "HTTP://example.com/",
    "http://8.8.8.8/",
    "http://127.0.0.1/",
    "http://[::1]/",
    "ftp://example.com/",
    "file:///etc/passwd",
    "file://localhost/etc/passwd",
    "gopher://127.0.0.1:6379/_x",
    "data:text/plain;base64,QQ==",
    "javascript:alert(1)",
    "ws://example.com/",
    "wss://example.com/",
    "dict://127.0.0.1:11211/",
    "ldap://127.0.0.1/",
    "unix:///var/run/docker.sock",
    "http+unix://%2Fvar%2Frun%2Fdocker.sock/",
    "https+x://example.com/",
    "httpss://example.com/",
    "jar:https://example.com!/",
    "s3://bucket/key",
    "view-source:https://example.com/",
    "https://.example.com/",
    "https://example..com/",
    "https://example.com../",
    "https://./",
    "https://../",
    "https://-a.example.com/",
    "https://a-.example.com/",
    "https://exa$mple.com/",
    "https://exam,ple.com/",
    "https://example.com;evil.com/",
    "https://exam'ple.com/",
    "https://exam(ple).com/",
    "https://{host}.example.com/",
    "https://*.example.com/",
    "https://exam&ple.com/",
    "https://" + "a" * 64 + ".com/",
    "https://" + "a." * 130 + "com/",
    "https://example.com/" + "a" * 2048,
    "https://xn--a b.com/",
]

REFUSED = [*LOOPBACK, *PRIVATE, *IPV6, *NAMES, *DISGUISED, *CONFUSING]

GOOD = {
    # given, and the one spelling that is opened
    "https://example.com": "https://example.com/",
    "https://example.com/": "https://example.com/",
    "HTTPS://EXAMPLE.COM/Path": "https://example.com/Path",
    "https://example.com./": "https://example.com/",
    "https://example.com:443/": "https://example.com/",
    "https://example.com:8443/hook": "https://example.com:8443/hook",
    "https://example.com:1/": "https://example.com:1/",
    "https://example.com:65535/": "https://example.com:65535/",
    "https://example.com:80/": "https://example.com:80/",
    "https://example.com?a=b": "https://example.com/?a=b",
    "https://example.com/?u=http://127.0.0.1/": "https://example.com/?u=http://127.0.0.1/",
    "https://example.com/a@b:c": "https://example.com/a@b:c",
    "https://example.com/%2e%2e/%23?x=%20": "https://example.com/%2e%2e/%23?x=%20",
    "https://example.com//a/../b": "https://example.com//a/../b",
    "https://example.com/ä?ü=ß": "https://example.com/%C3%A4?%C3%BC=%C3%9F",
    "https://example.com/a%20ä": "https://example.com/a%20%C3%A4",
    "https://a.b.c.d.example.co.uk/": "https://a.b.c.d.example.co.uk/",
    "https://my_hooks.example.com/": "https://my_hooks.example.com/",
    "https://1e100.net/": "https://1e100.net/",
    "https://163.com/": "https://163.com/",
    "https://0x.example.com/": "https://0x.example.com/",
    "https://127.0.0.1.example.com/": "https://127.0.0.1.example.com/",
    "https://localhost.example.com/": "https://localhost.example.com/",
    "https://internal.example.com/": "https://internal.example.com/",
    "https://notlocalhost.com/": "https://notlocalhost.com/",
    "https://mylocal.de/": "https://mylocal.de/",
    "https://bücher.example.org/": "https://xn--bcher-kva.example.org/",
    "https://BÜCHER.example.org/": "https://xn--bcher-kva.example.org/",
    "https://faß.de/": "https://xn--fa-hia.de/",
    "https://例え.jp/": "https://xn--r8jz45g.jp/",
    "https://ｅｘａｍｐｌｅ.com/": "https://example.com/",
    "https://example。com/": "https://example.com/",
    "https://xn--bcher-kva.example.org/": "https://xn--bcher-kva.example.org/",
    "https://8.8.8.8/": "https://8.8.8.8/",
    "https://1.1.1.1:8443/x": "https://1.1.1.1:8443/x",
    "https://9.255.255.255/": "https://9.255.255.255/",
    "https://11.0.0.0/": "https://11.0.0.0/",
    "https://100.63.255.255/": "https://100.63.255.255/",
    "https://100.128.0.0/": "https://100.128.0.0/",
    "https://126.255.255.255/": "https://126.255.255.255/",
    "https://128.0.0.1/": "https://128.0.0.1/",
    "https://169.253.255.255/": "https://169.253.255.255/",
    "https://172.15.255.255/": "https://172.15.255.255/",
    "https://172.32.0.0/": "https://172.32.0.0/",
    "https://192.167.255.255/": "https://192.167.255.255/",
    "https://192.169.0.0/": "https://192.169.0.0/",
    "https://198.17.255.255/": "https://198.17.255.255/",
    "https://198.20.0.0/": "https://198.20.0.0/",
    "https://223.255.255.255/": "https://223.255.255.255/",
    "https://[2606:4700:4700::1111]/": "https://[2606:4700:4700::1111]/",
    "https://[2606:4700:4700:0:0:0:0:1111]/": "https://[2606:4700:4700::1111]/",
    "https://[2A00:1450:4001::200E]:8443/x": "https://[2a00:1450:4001::200e]:8443/x",
    "https://[::ffff:8.8.8.8]/": "https://[::ffff:808:808]/",
    "https://[64:ff9b::8.8.8.8]/": "https://[64:ff9b::808:808]/",
    "https://[2001:200::1]/": "https://[2001:200::1]/",
    "https://[2606:4700::5efe:8.8.8.8]/": "https://[2606:4700::5efe:808:808]/",
}

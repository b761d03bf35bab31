"""ssl.principal.mapping.rules: the cases of Kafka's SslPrincipalMapperTest, and what they leave out."""

from __future__ import annotations

import pytest

from kwire.security.principals import Mapping, NoRuleError


@pytest.mark.parametrize(
    "rules",
    [
        "",
        "DEFAULT",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, DEFAULT",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L",
        "RULE:^cn=(.?),ou=(.?),dc=(.?),dc=(.?)$/$1@$2/U",
        "RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/",
        "RULE:^CN=([^,DEFAULT,]+)(,.*|$)/$1/",
        ",   , , ,      , , ,   ",
        ",  , RULE: /   /    ,,,   DEFAULT, ,   ",
    ],
)
def test_rules_that_are_valid(rules: str) -> None:
    Mapping(rules)


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "DEFAULT/U",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
        "RULE:^CN=(.*$/$1/",
    ],
)
def test_rules_that_are_not(rules: str) -> None:
    with pytest.raises(ValueError, match=r"^\S"):
        Mapping(rules)


KAFKAS = ", ".join(
    (
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
        "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
        "DEFAULT",
    )
)


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        (KAFKAS, "CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        (KAFKAS, "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        (KAFKAS, "cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        (KAFKAS, "cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        (KAFKAS, "OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
        (
            r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT",
            r"CN=Tkac\, Adam,OU=ITZ,DC=geodis,DC=cz",
            r"Tkac\, Adam",
        ),
        # a number is as long as there are groups; one that is too large is text
        ("RULE:^CN=(.*)$/$1@$4/", "CN=a", "a@$4"),
        ("RULE:^CN=(.*)$/$12/", "CN=a", "a2"),
        ("RULE:^(.)(.*)$/$0-$2/", "CN=a", "CN=a-N=a"),
        (r"RULE:^CN=(.*)$/\$1\/x/", "CN=a", "$1/x"),
        ("RULE:^CN=(.*)$//", "CN=a", ""),
        ("RULE:^CN=.*$/all/U", "CN=a", "ALL"),
    ],
)
def test_names_and_principals(rules: str, name: str, principal: str) -> None:
    assert Mapping(rules).name_of(name) == principal


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("RULE:^CN=(.*?),OU=x$/$1/", "CN=a"),
        ("", "CN=a"),
        ("RULE:^CN=a$/$1/", "CN=a"),  # Java: no group 1
    ],
)
def test_names_that_no_rule_is_for(rules: str, name: str) -> None:
    with pytest.raises(NoRuleError):
        Mapping(rules).name_of(name)

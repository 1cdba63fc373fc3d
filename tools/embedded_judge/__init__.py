"""How the tiny judge that judgekit ships is made and measured; see README.md."""

module bolidetest

go 1.19

module freeboard

go 1.19

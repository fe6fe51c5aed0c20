// Reads the operands of vectors.txt, and writes results.txt with the results of a unit in place of those of simfloat.
module testbench;
  logic [15:0] x, y, c, expected, sum, total;
  logic [31:0] a, b;
  logic [7:0] flags;
  int vectors, results, count;
  adder the_adder(.a(x), .b(y), .result(sum));
  dot4 the_dot(.a(a), .b(b), .c(c), .result(total));
  initial begin
    vectors = $fopen("vectors.txt", "r");
    results = $fopen("results.txt", "w");
    while (!$feof(vectors)) begin
`ifdef DOT
      count = $fscanf(vectors, "%h %h %h %h", a[7:0], a[15:8], a[23:16], a[31:24]);
      count += $fscanf(vectors, "%h %h %h %h %h %h\n", b[7:0], b[15:8], b[23:16], b[31:24], c, expected);
      #1 if (count == 10) $fdisplay(results, "%h %h %h %h %h %h %h %h %h %h", a[7:0], a[15:8], a[23:16], a[31:24],
          b[7:0], b[15:8], b[23:16], b[31:24], c, total);
`else
      count = $fscanf(vectors, "%h %h %h %h\n", x, y, expected, flags);
      #1 if (count == 4) $fdisplay(results, "%h %h %h %h", x, y, sum, flags);
`endif
    end
    $finish;
  end
endmodule

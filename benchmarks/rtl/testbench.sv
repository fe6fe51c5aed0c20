// Reads the operands of vectors.txt, and writes results.txt with the results of a unit in place of those of simfloat.
module testbench;
  logic [15:0] x, y, c, expected, sum, total;
  logic [31:0] a, b;
  logic [7:0] flags, x0, x1, x2, x3, y0, y1, y2, y3;
  int vectors, results, count;
  adder the_adder(.a(x), .b(y), .result(sum));
  dot4 the_dot(.a(a), .b(b), .c(c), .result(total));
  initial begin
    vectors = $fopen("vectors.txt", "r");
    results = $fopen("results.txt", "w");
    while (!$feof(vectors)) begin
`ifdef DOT
      count = $fscanf(vectors, "%h %h %h %h", x0, x1, x2, x3);
      count += $fscanf(vectors, "%h %h %h %h %h %h\n", y0, y1, y2, y3, c, expected);
      a = {x3, x2, x1, x0};
      b = {y3, y2, y1, y0};
      #1 if (count == 10) $fdisplay(results, "%h %h %h %h %h %h %h %h %h %h", x0, x1, x2, x3, y0, y1, y2, y3, c, total);
`else
      count = $fscanf(vectors, "%h %h %h %h\n", x, y, expected, flags);
      #1 if (count == 4) $fdisplay(results, "%h %h %h %h", x, y, sum, flags);
`endif
    end
    $finish;
  end
endmodule
